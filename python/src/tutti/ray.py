"""tutti as a backend of ray.util.collective, for numpy arrays and torch tensors in host memory.

    import tutti.ray                            # on the driver and in every actor: it registers the name "tutti"
    from ray.util import collective

    collective.init_collective_group(world_size, rank, "tutti", "group")    # in each actor
    collective.allreduce(array, "group")        # in place
"""

from __future__ import annotations

import json
import math
import os
import secrets
import socket
import time

import numpy as np

from ._errors import TimedOutError, with_advice
from .communicator import Communicator, init


def _import_ray():
    try:
        import ray
        from ray.experimental import internal_kv
        from ray.util.collective import backend_registry, types
        from ray.util.collective.collective_group.base_collective_group import BaseGroup
    except ImportError as error:
        raise ImportError(with_advice("tutti.ray needs Ray with ray.util.collective.backend_registry, which cannot be "
                                      f"imported here ({error})",
                                      "pip install --upgrade ray")) from error
    return ray, internal_kv, backend_registry, types, BaseGroup


ray, internal_kv, backend_registry, types, BaseGroup = _import_ray()

__all__ = ["NAME", "TuttiGroup", "register"]

NAME = "TUTTI"
OPERATORS = {types.ReduceOp.SUM: "sum", types.ReduceOp.PRODUCT: "prod", types.ReduceOp.MIN: "min",
             types.ReduceOp.MAX: "max"}
NAMESPACE = b"tutti"
POLL_S = 0.05
DEFAULT_TIMEOUT_MS = 300_000  # as the setting timeout_ms
# The jobs that this process has joined. Rank 0 may not have removed one from Ray's store when the others make a group of
# the same name again.
_known_jobs: set[str] = set()


class TuttiGroup(BaseGroup):
    """A group of ray.util.collective over a tutti.Communicator, which is the attribute ``communicator``.

    The constructor blocks until all ranks have joined. Ranks find each other through Ray's key-value store, which also
    carries the group's random secret. Settings come from the variables TUTTI_… of the actor's environment. Calls change
    the tensors in place; tensors are contiguous and in host memory. Errors are tutti's: PeerLostError and so on.
    """

    def __init__(self, world_size: int, rank: int, group_name: str):
        super().__init__(world_size, rank, group_name)
        if world_size == 1:
            self.communicator: Communicator = init(rank=0, size=1)
            return
        key = _key(group_name)
        place = _publish(key) if rank == 0 else _published(key, group_name, rank)
        _known_jobs.add(place["job"])
        try:
            self.communicator = init(rank=rank, size=world_size, **place)
        finally:
            if rank == 0:  # all ranks have joined, or none can
                internal_kv._internal_kv_del(key, namespace=NAMESPACE)

    @classmethod
    def backend(cls) -> str:
        """The name under which the group is registered."""
        return NAME

    @classmethod
    def check_backend_availability(cls) -> bool:
        """True: the module could be imported."""
        return True

    def destroy_group(self) -> None:
        """Leaves in order."""
        self.communicator.close()

    def allreduce(self, tensor, allreduce_options=types.AllReduceOptions()) -> None:
        x = _single(tensor)
        self.communicator.allreduce(x, _operator(allreduce_options), out=x)

    def barrier(self, barrier_options=types.BarrierOptions()) -> None:
        self.communicator.barrier()

    def reduce(self, tensor, reduce_options=types.ReduceOptions()) -> None:
        """Only the root's tensor changes."""
        x, root = _single(tensor), reduce_options.root_rank
        self.communicator.reduce(x, _operator(reduce_options), root=root, out=x if self.rank == root else None)

    def broadcast(self, tensor, broadcast_options=types.BroadcastOptions()) -> None:
        self.communicator.broadcast(_single(tensor), root=broadcast_options.root_rank)

    def allgather(self, tensor_list, tensor, allgather_options=types.AllGatherOptions()) -> None:
        x, outs = _single(tensor), self._one_for_each_rank(tensor_list, tensor)
        whole, rows = _rows_like(x, self.world_size)
        self.communicator.allgather(x, out=whole)
        for out, row in zip(outs, rows):
            _copy(out, row)

    def reducescatter(self, tensor, tensor_list, reducescatter_options=types.ReduceScatterOptions()) -> None:
        """The tensors of the list stay as they are."""
        out, ins = _single(tensor), self._one_for_each_rank(tensor_list, tensor)
        whole, rows = _rows_like(out, self.world_size)
        for row, x in zip(rows, ins):
            _copy(row, x)
        self.communicator.reduce_scatter(whole, _operator(reducescatter_options), out=out)

    def send(self, tensor, send_options) -> None:
        self.communicator.send(_single(tensor), send_options.dst_rank)

    def recv(self, tensor, recv_options) -> None:
        self.communicator.recv(_single(tensor), recv_options.src_rank)

    def _one_for_each_rank(self, tensor_list, tensor):
        if len(tensor_list) != 1:
            raise ValueError(with_advice(f"group '{self.group_name}', rank {self.rank}: got {len(tensor_list)} lists "
                                         "of tensors",
                                         "pass one list, because tutti's groups have one tensor for each process"))
        found, shape = [_plain(x) for x in tensor_list[0]], tuple(tensor[0].shape)
        wrong = [tuple(x.shape) for x in found if tuple(x.shape) != shape]
        if len(found) != self.world_size or wrong:
            raise ValueError(with_advice(f"group '{self.group_name}', rank {self.rank}: the list has {len(found)} "
                                         f"tensors, of shapes {[tuple(x.shape) for x in found]}",
                                         f"pass {self.world_size} tensors of shape {shape}, one for each rank"))
        return found


def register() -> None:
    """Makes the name "tutti" known to ray.util.collective in this process; the import does it."""
    if not backend_registry._global_registry.is_registered(NAME):
        backend_registry.register_collective_backend(NAME, TuttiGroup)


# ---- tensors

def _plain(x):
    # torch exports no memory of a tensor that requires gradients; its detached view shares that memory.
    return x.detach() if hasattr(x, "detach") else x


def _single(tensors):
    """Ray passes each tensor in a list, which has one for each GPU of the process."""
    if len(tensors) != 1:
        raise ValueError(with_advice(f"tutti's groups have one tensor for each process, but got {len(tensors)}",
                                     "use a process for each device, and the calls without _multigpu"))
    return _plain(tensors[0])


def _rows_like(x, count: int):
    """Memory for count tensors like x as one, and the tensors, which share it also if x has no dimension."""
    shape = (count, *x.shape)
    whole = np.empty(shape, x.dtype) if isinstance(x, np.ndarray) else x.new_empty(shape)
    return whole, [whole[row, ...] for row in range(count)]


def _copy(target, source) -> None:
    if isinstance(target, np.ndarray):
        target[...] = np.asarray(source)
    elif isinstance(source, np.ndarray):
        np.asarray(target)[...] = source  # the tensor's own memory
    else:
        target.copy_(source)


def _operator(options) -> str:
    return OPERATORS[options.reduceOp]


# ---- the ranks find each other

def _key(group_name: str) -> str:
    # The store serves all jobs of the cluster, and each may have a group of this name.
    return f"group/{ray.get_runtime_context().get_job_id()}/{group_name}"


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


def _publish(key: str) -> dict[str, str]:
    """Rank 0: returns the settings under which the ranks meet, and writes them to Ray's store."""
    host = ray.util.get_node_ip_address()
    address = f"[{host}]" if ":" in host else host
    # The job's name is new each time, because a process counts its communicators of one job.
    place = {"store": f"tcp://{address}:{_free_port(host)}", "job": "ray-" + secrets.token_hex(8), "store_hosted": "0"}
    if "TUTTI_SECRET" not in os.environ and "TUTTI_SECRET_FILE" not in os.environ:
        place["secret"] = secrets.token_hex(32)
    internal_kv._internal_kv_put(key, json.dumps(place), True, namespace=NAMESPACE)
    return place


def _published(key: str, group_name: str, rank: int) -> dict[str, str]:
    """Other ranks: waits for rank 0's settings. Ignores those of an earlier group, and those whose store is gone."""
    limit_s = _timeout_s()
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        text = internal_kv._internal_kv_get(key, namespace=NAMESPACE)
        if text is not None:
            place = json.loads(text)
            if place["job"] not in _known_jobs and _answers(place["store"]):
                return place
        time.sleep(POLL_S)
    raise TimedOutError(with_advice(f"init of group '{group_name}': rank {rank}: rank 0 opened no store within "
                                    f"{limit_s:g} s",
                                    "create the group on rank 0 too, read the output of its actor, or raise "
                                    "TUTTI_TIMEOUT_MS"),
                        rank=0, operation="init")


def _answers(store: str) -> bool:
    host, _, port = store.removeprefix("tcp://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def _timeout_s() -> float:
    text = os.environ.get("TUTTI_TIMEOUT_MS", "")
    milliseconds = int(text) if text.isdecimal() else DEFAULT_TIMEOUT_MS  # init() refuses a bad value
    return milliseconds / 1000 or math.inf


register()
