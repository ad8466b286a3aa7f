"""tutti as a backend of torchcomms, for tensors of hosts and CUDA devices.

    import tutti.torchcomms                     # registers the name "tutti"; torchcomms finds it without this line, too
    comm = torchcomms.new_comm("tutti", torch.device("cpu"), name="main")
    comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, async_op=False)

The package torchcomms on PyPI is empty. This module follows the interface for backends in Python in the sources of
torchcomms (torchcomms._comms), and was tested with a stand-in for that module.
"""

from __future__ import annotations

import hashlib
import os
from datetime import timedelta

from ._errors import with_advice
from .torch import build, torch

try:
    from torchcomms._comms import TorchCommBackend, _is_backend_registered, register_backend
except ImportError as error:
    raise ImportError(with_advice(f"tutti.torchcomms needs torchcomms, which cannot be imported here ({error})",
                                  "install it from where its project publishes wheels (the package on "
                                  "PyPI is empty), or use tutti.torch without it")) from error

__all__ = ["NAME", "TuttiComm", "register"]

dist, c10d = torch.distributed, torch.distributed.distributed_c10d
NAME = "tutti"
# The variables in which launchers give a process its rank and the number of ranks, in the order of torchcomms.
RANKS = ("TORCHCOMM_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PALS_RANKID", "SLURM_PROCID", "RANK")
SIZES = ("TORCHCOMM_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "WORLD_SIZE")
# The launcher's stores. Rank 0 may serve one, which later communicators use, so it lasts as long as the process.
_stores: dict[tuple, dist.Store] = {}


class TuttiComm(TorchCommBackend):
    """A communicator of torchcomms over tutti; its calls are those of a process group of tutti.torch.

    A call's time-out is that of the communicator, as torchcomms passes a call's own options to no backend in Python.
    Settings come from the variables TUTTI_…. Windows, batches of messages and reconfigure() are not there.
    """

    def __init__(self) -> None:
        super().__init__()
        self._group = self._store = None
        self._rank = self._size = -1
        self._device = torch.device("cpu")
        self._name = self._job = ""

    def init(self, device, name, options) -> None:
        """Joins the ranks that make a communicator of the same name. Blocks until all have come."""
        rank, size = _number(RANKS, name), _number(SIZES, name)
        self._join(device, name, options, _store_of(options, name, rank, size), rank, size, f"torchcomms/{name}")

    def finalize(self) -> None:
        """Leaves in order: the other ranks go on with the calls that this rank has made."""
        if self._group is not None:
            self._group._get_backend(self._device).shutdown()
        self._group = self._store = None

    def split(self, ranks, name, options):
        """The communicator of these ranks of this one, in this order; None on a rank that passes no ranks.

        ValueError: the ranks are not different ranks of this communicator, or this rank is not among them.
        """
        ranks, own = list(ranks), self._live.rank()  # also refuses a communicator that has ended
        if not ranks:
            return None
        if own not in ranks or len(set(ranks)) != len(ranks) or not set(ranks) <= set(range(self.get_size())):
            raise ValueError(with_advice(f"tutti.torchcomms: split of '{self._name}' into '{name}' on rank {own}: the "
                                         f"ranks are {ranks}",
                                         f"pass different ranks of 0 to {self.get_size() - 1} with the calling rank "
                                         "among them, or none on a rank that is in no part"))
        # Several parts may have one name at a time, and a rank counts its communicators of a job: a part is a job.
        job = f"{self._job}/{name}/{hashlib.sha256(repr(ranks).encode()).hexdigest()[:16]}"
        part = type(self)()
        part._join(self._device, name, options, self._store, ranks.index(own), len(ranks), job)
        part._set_device_and_options(self._device, options)
        return part

    def get_rank(self) -> int:
        return self._rank

    def get_size(self) -> int:
        return self._size

    def get_backend_name(self) -> str:
        return NAME

    def get_comm_name(self) -> str:
        return self._name

    def send(self, tensor, dst, async_op):
        return _over(self._live.send([tensor], dst, 0), async_op)

    def recv(self, tensor, src, async_op):
        return _over(self._live.recv([tensor], src, 0), async_op)

    def broadcast(self, tensor, root, async_op):
        return _over(self._live.broadcast([tensor], _with(c10d.BroadcastOptions(), rootRank=root)), async_op)

    def all_reduce(self, tensor, op, async_op):
        return _over(self._live.allreduce([tensor], _with(c10d.AllreduceOptions(), reduceOp=_operator(op))), async_op)

    def reduce(self, tensor, root, op, async_op):
        options = _with(c10d.ReduceOptions(), rootRank=root, reduceOp=_operator(op))
        return _over(self._live.reduce([tensor], options), async_op)

    def all_gather(self, tensor_list, tensor, async_op):
        return _over(self._live.allgather([list(tensor_list)], [tensor], c10d.AllgatherOptions()), async_op)

    all_gather_v = all_gather  # the tensors of the list may have different lengths

    def all_gather_single(self, output, input, async_op):
        return _over(self._live._allgather_base(output, input, c10d.AllgatherOptions()), async_op)

    def reduce_scatter(self, output, input_list, op, async_op):
        options = _with(c10d.ReduceScatterOptions(), reduceOp=_operator(op))
        return _over(self._live.reduce_scatter([output], [list(input_list)], options), async_op)

    reduce_scatter_v = reduce_scatter

    def reduce_scatter_single(self, output, input, op, async_op):
        options = _with(c10d.ReduceScatterOptions(), reduceOp=_operator(op))
        return _over(self._live._reduce_scatter_base(output, input, options), async_op)

    def all_to_all_single(self, output, input, async_op):
        return self.all_to_all_v_single(output, input, [], [], async_op)

    def all_to_all_v_single(self, output, input, output_split_sizes, input_split_sizes, async_op):
        work = self._live.alltoall_base(output, input, list(output_split_sizes), list(input_split_sizes),
                                        c10d.AllToAllOptions())
        return _over(work, async_op)

    def all_to_all(self, output_tensor_list, input_tensor_list, async_op):
        work = self._live.alltoall(list(output_tensor_list), list(input_tensor_list), c10d.AllToAllOptions())
        return _over(work, async_op)

    def barrier(self, async_op):
        return _over(self._live.barrier(c10d.BarrierOptions()), async_op)

    def scatter(self, output_tensor, input_tensor_list, root, async_op):
        inputs = [list(input_tensor_list)] if self.get_rank() == root else []
        return _over(self._live.scatter([output_tensor], inputs, _with(c10d.ScatterOptions(), rootRank=root)), async_op)

    def gather(self, output_tensor_list, input_tensor, root, async_op):
        outputs = [list(output_tensor_list)] if self.get_rank() == root else []
        return _over(self._live.gather(outputs, [input_tensor], _with(c10d.GatherOptions(), rootRank=root)), async_op)

    @property
    def _live(self):
        if self._group is None:
            raise RuntimeError(with_advice(f"tutti.torchcomms: the communicator '{self._name}' was not made, or "
                                           "finalize() has ended it",
                                           "make one with torchcomms.new_comm(\"tutti\", …)"))
        return self._group

    def _join(self, device, name, options, store, rank, size, job):
        milliseconds = round(options.timeout.total_seconds() * 1000)
        backend = build().create(dist.PrefixStore(job, store), rank, size, milliseconds, job, {})
        group = dist.ProcessGroup(store, rank, size)
        custom = dist.ProcessGroup.BackendType.CUSTOM
        group._set_default_backend(custom)
        group._register_backend(torch.device(device.type), custom, backend)
        self._group, self._store, self._rank, self._size = group, store, rank, size
        self._device, self._name, self._job = device, name, job


def register() -> None:
    """Makes the name "tutti" known to torchcomms in this process; the import does it."""
    if not _is_backend_registered(NAME):
        register_backend(NAME, TuttiComm)


def _over(work, async_op):
    """The work, for which the caller waits; None if the call is over when it returns."""
    if async_op:
        return work
    work.wait()
    return None


def _with(options, **values):
    for name, value in values.items():
        setattr(options, name, value)
    return options


def _operator(op):
    kind = op.type.name
    return dist._make_nccl_premul_sum(op.factor) if kind == "PREMUL_SUM" else getattr(dist.ReduceOp, kind)


def _number(variables, name) -> int:
    for variable in variables:
        if os.environ.get(variable, "").isdecimal():
            return int(os.environ[variable])
    raise RuntimeError(with_advice(f"tutti.torchcomms: the communicator '{name}' cannot know this process' rank and "
                                   f"the number of ranks: none of {', '.join(variables)} is a number",
                                   f"start the ranks with torchrun, or set {RANKS[0]} and {SIZES[0]}"))


def _store_of(options, name, rank, size):
    """The store of the options, else that of the launcher."""
    if getattr(options, "store", None) is not None:
        return options.store
    missing = [variable for variable in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(variable)]
    if missing:
        raise RuntimeError(with_advice(f"tutti.torchcomms: rank {rank} has no store for the communicator '{name}', as "
                                       f"{' and '.join(missing)} is not set",
                                       "start the ranks with torchrun, or pass store= to new_comm"))
    place = (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"], rank, size)
    if place not in _stores:
        limit = max(options.timeout, timedelta(seconds=1))
        _stores[place], _, _ = next(dist.rendezvous("env://", rank, size, timeout=limit))
    return _stores[place]


register()
