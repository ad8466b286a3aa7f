"""Every call of a communicator of torchcomms over tutti, on three ranks."""
import datetime
import os

import torch
import torchcomms
from torchcomms import ReduceOp

device = torch.device("cpu")
comm = torchcomms.new_comm("tutti", device, name="main", timeout=datetime.timedelta(seconds=60))
rank, size = comm.get_rank(), comm.get_size()
assert (rank, size) == (int(os.environ["RANK"]), 3), (rank, size)
assert (comm.get_backend(), comm.get_name()) == ("tutti", "main")


def mine(*shape, of=None):
    return torch.full(shape, float((rank if of is None else of) + 1))


def equal(got, wanted):
    wanted = torch.as_tensor(wanted, dtype=got.dtype)
    assert torch.equal(got, wanted.expand_as(got)), f"rank {rank}: {got}, not {wanted}"


def check(call, made, look):
    """made() gives the arguments, look() checks them after the call."""
    for async_op in (False, True):
        arguments = made()
        work = getattr(comm, call)(*arguments, async_op=async_op)
        assert async_op or work.is_completed(), call
        work.wait()
        look(*arguments)


for op, wanted in ((ReduceOp.SUM, 6), (ReduceOp.PRODUCT, 6), (ReduceOp.MIN, 1), (ReduceOp.MAX, 3), (ReduceOp.AVG, 2),
                   (ReduceOp.PREMUL_SUM(0.5), 3)):
    check("all_reduce", lambda: (mine(5), op), lambda x, _: equal(x, wanted))
for op, wanted in ((ReduceOp.BAND, 0), (ReduceOp.BOR, 3), (ReduceOp.BXOR, 0)):
    check("all_reduce", lambda: (mine(5).int(), op), lambda x, _: equal(x, wanted))
check("reduce", lambda: (mine(4), 1, ReduceOp.SUM), lambda x, *_: equal(x, 6 if rank == 1 else rank + 1))
check("broadcast", lambda: (mine(4), 2), lambda x, _: equal(x, 3))


def equal_each(tensors):
    for other, tensor in enumerate(tensors):
        equal(tensor, other + 1)


check("all_gather", lambda: ([torch.zeros(2, 3) for _ in range(3)], mine(2, 3)), lambda out, _: equal_each(out))
check("all_gather_v", lambda: ([torch.zeros(other + 1) for other in range(3)], mine(rank + 1)),
      lambda out, _: equal_each(out))
check("all_gather_single", lambda: (torch.zeros(6), mine(2)), lambda out, _: equal(out, [1, 1, 2, 2, 3, 3]))
check("reduce_scatter", lambda: (torch.zeros(2), [mine(2) * 10 ** other for other in range(3)], ReduceOp.SUM),
      lambda out, *_: equal(out, 6 * 10 ** rank))
check("reduce_scatter_v", lambda: (torch.zeros(rank + 1), [mine(other + 1) for other in range(3)], ReduceOp.MAX),
      lambda out, *_: equal(out, 3))
check("reduce_scatter_single", lambda: (torch.zeros(1), mine(3), ReduceOp.SUM), lambda out, *_: equal(out, 6))
check("all_to_all_single", lambda: (torch.zeros(3), mine(3)), lambda out, _: equal(out, [1, 2, 3]))
# Rank r sends one row to each rank, and r rows more to itself.
splits = [1 + (other == rank) * rank for other in range(3)]
check("all_to_all_v_single", lambda: (torch.zeros(3 + rank, 2), mine(3 + rank, 2), splits, splits),
      lambda out, *_: equal_each(out.split(splits)))
check("all_to_all", lambda: ([torch.zeros(2) for _ in range(3)], [mine(2) for _ in range(3)]),
      lambda out, _: equal_each(out))
check("scatter", lambda: (torch.zeros(2), [mine(2, of=other) for other in range(3)] if rank == 1 else [], 1),
      lambda out, *_: equal(out, rank + 1))
check("gather", lambda: ([torch.zeros(2) for _ in range(3)] if rank == 2 else [], mine(2), 2),
      lambda out, *_: equal_each(out))
check("barrier", lambda: (), lambda: None)
if rank == 0:
    check("send", lambda: (mine(3), 1), lambda *_: None)
elif rank == 1:
    check("recv", lambda: (torch.zeros(3), 0), lambda x, _: equal(x, 1))

# Two parts of one name, one after the other, and a rank that is in neither.
for ranks in ([2, 0], [0, 1]):
    part = comm.split(ranks if rank in ranks else [], "part")
    assert (part is None) == (rank not in ranks)
    if part:
        assert (part.get_rank(), part.get_size(), part.get_name()) == (ranks.index(rank), 2, "part")
        x = mine(1)
        part.all_reduce(x, ReduceOp.SUM, async_op=False)
        equal(x, sum(member + 1 for member in ranks))
        part.finalize()
try:
    comm.split([1 - rank % 2], "wrong")
    raise AssertionError("a split without the calling rank was accepted")
except ValueError as error:
    assert f"on rank {rank}" in str(error) and "What to do: " in str(error), error
other = torchcomms.new_comm("tutti", device, name="other")
x = mine(1)
other.all_reduce(x, ReduceOp.SUM, async_op=False)
equal(x, 6)
for each in (other, comm):
    each.finalize()
try:
    comm.barrier(async_op=False)
    raise AssertionError("a call after finalize() was accepted")
except RuntimeError as error:
    assert "finalize" in str(error) and "What to do: " in str(error), error
print("TORCHCOMMS", rank, getattr(torchcomms, "__version__", "stand-in"))
