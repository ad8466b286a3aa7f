"""tutti's group for torchft over a stand-in of torchft's class: the errors that errored() returns."""
import datetime
import sys
import types

import torch
import torch.distributed as dist


class ProcessGroupWrapper:
    """The part of torchft's class that its subclasses use."""

    def __init__(self, timeout):
        self._timeout, self._pg = timeout, None

    def configure(self, store_addr, rank, world_size):
        self._pg = self._create_pg(dist.HashStore(), rank, world_size)


sys.modules["torchft"] = types.ModuleType("torchft")
sys.modules["torchft.process_group"] = types.ModuleType("torchft.process_group")
sys.modules["torchft.process_group"].ProcessGroupWrapper = ProcessGroupWrapper
import tutti.torch  # noqa: E402
from tutti.torch.ft import ProcessGroupTutti  # noqa: E402

group = ProcessGroupTutti(datetime.timedelta(seconds=30))
assert group.errored() is None
group.configure("stand-in/0", 0, 1)
group._pg.allreduce([torch.ones(3)]).wait()
assert group.errored() is None
group._pg.abort()
try:
    group._pg.allreduce([torch.ones(3)]).wait()
except tutti.torch.AbortedError:
    pass
error = group.errored()
assert isinstance(error, tutti.torch.Error) and "abort" in str(error), error
group.configure("stand-in/1", 0, 1)
assert group.errored() is None
print("ERRORED ok", flush=True)
