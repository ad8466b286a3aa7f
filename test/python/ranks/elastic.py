"""A training under torchrun --max-restarts: rank 1 is killed once, and all ranks go on from the last checkpoint."""
import os
import pathlib
import signal

import torch
import torch.distributed as dist

import tutti.torch  # noqa: F401

STEPS, KILLED_AT = 30, 12

checkpoint = pathlib.Path(os.environ["TUTTI_TEST_FOLDER"]) / "checkpoint"
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("tutti")
rank = dist.get_rank()
state = torch.load(checkpoint) if checkpoint.exists() else {"step": 0, "sum": torch.zeros(1000)}
first = state["step"]
for step in range(first, STEPS):
    if attempt == 0 and rank == 1 and step == KILLED_AT:
        os.kill(os.getpid(), signal.SIGKILL)
    gradient = torch.full((1000,), float(step + rank))
    dist.all_reduce(gradient)
    state = {"step": step + 1, "sum": state["sum"] + gradient}
    if rank == 0:
        written = checkpoint.with_suffix(".new")
        torch.save(state, written)
        written.rename(checkpoint)
assert torch.equal(state["sum"], torch.full((1000,), float(sum(2 * step + 1 for step in range(STEPS))))), state
dist.barrier()
dist.destroy_process_group()
print(f"ELASTIC rank {rank} attempt {attempt} from step {first}", flush=True)
