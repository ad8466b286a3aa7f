"""Two groups of two ranks each, with a store of their own, become one group of four: merge_remote_group of torch 2.10."""
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

import tutti.torch  # noqa: F401
from expect import raises

if not hasattr(dist.ProcessGroup, "merge_remote_group"):
    print("MERGE this torch cannot")
    sys.exit(0)
TIMEOUT = timedelta(seconds=120)
number, folder = int(os.environ["RANK"]), os.environ["TUTTI_TEST_FOLDER"]
half, rank = divmod(number, 2)
dist.init_process_group("tutti", store=dist.FileStore(f"{folder}/half{half}", 2), rank=rank, world_size=2)
whole = dist.group.WORLD


def check_sum(group, members):
    x = torch.full((1000,), 10.0 ** number)
    group.allreduce([x]).wait()
    assert torch.equal(x, torch.full((1000,), sum(10.0 ** member for member in members))), x


check_sum(whole, [2 * half, 2 * half + 1])
for turn in range(2):
    merged = whole.merge_remote_group(dist.FileStore(f"{folder}/all{turn}", 4), 4, TIMEOUT, f"merged {turn}")
    assert merged.size() == 4
    ranks = [torch.zeros(1, dtype=torch.int64) for _ in range(4)]
    merged.allgather([ranks], [torch.tensor([merged.rank()])]).wait()
    assert torch.equal(torch.cat(ranks), torch.arange(4)), ranks
    check_sum(merged, range(4))
    check_sum(whole, [2 * half, 2 * half + 1])
    # The merged group's end leaves the two groups as they are.
    merged.shutdown()
# The other group never calls it.
if half == 0:
    raises(RuntimeError, "did not join", whole.merge_remote_group, dist.FileStore(f"{folder}/lonely", 4), 4,
           timedelta(seconds=2), "lonely")
dist.barrier()
dist.destroy_process_group()
print("MERGED")
