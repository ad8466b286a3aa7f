"""tutti.ray in Ray's actors: collectives of numpy arrays and torch tensors, groups that come and go, errors."""
import json
import os
import sys
import time

import numpy as np
import ray
from ray.util import collective
from ray.util.collective.types import ReduceOp

import tutti
import tutti.ray
from expect import raises

SIZE = 2


def same(got, wanted, what):
    assert np.array_equal(np.asarray(got), wanted), f"{what}: got {got!r}, wanted {wanted!r}"


def of(rank):
    return np.arange(6.0).reshape(2, 3) + rank + 1


@ray.remote(num_cpus=0)
class Member:
    """One rank. The driver calls the same method on all of them."""

    def __init__(self, rank, env=None):
        os.environ.update(env or {})
        import tutti.ray  # noqa: F401

        self.rank = rank

    def join(self, group):
        collective.init_collective_group(SIZE, self.rank, "tutti", group)

    def leave(self, group):
        collective.destroy_collective_group(group)

    def collectives(self, group, library):
        make, everyone = getattr(self, library), range(SIZE)
        for op, function in ((ReduceOp.SUM, np.sum), (ReduceOp.PRODUCT, np.prod), (ReduceOp.MIN, np.min),
                             (ReduceOp.MAX, np.max)):
            x = make(of(self.rank))
            collective.allreduce(x, group, op)
            same(x, function([of(r) for r in everyone], axis=0), f"allreduce {op}")
        for root in everyone:
            x = make(of(self.rank))
            collective.reduce(x, root, group)
            same(x, sum(of(r) for r in everyone) if self.rank == root else of(self.rank), "reduce")
            x = make(of(self.rank))
            collective.broadcast(x, root, group)
            same(x, of(root), "broadcast")
        outs = [make(np.zeros((2, 3))) for _ in everyone]
        collective.allgather(outs, make(of(self.rank)), group)
        for r in everyone:
            same(outs[r], of(r), "allgather")
        ins, out = [make(of(self.rank) * (r + 1)) for r in everyone], make(np.zeros((2, 3)))
        collective.reducescatter(out, ins, group)
        same(out, sum(of(r) for r in everyone) * (self.rank + 1), "reducescatter")
        same(ins[1], of(self.rank) * 2, "the inputs of reducescatter")
        outs, out = [make(np.zeros(())) for _ in everyone], make(np.zeros(()))  # without a dimension
        collective.allgather(outs, make(np.array(self.rank + 1.0)), group)
        same(np.stack(outs), [r + 1 for r in everyone], "allgather")
        collective.reducescatter(out, [make(np.array(self.rank + r + 1.0)) for r in everyone], group)
        same(out, sum(r + self.rank + 1 for r in everyone), "reducescatter")
        x = make(of(self.rank))
        if self.rank == 0:
            collective.send(x, 1, group)
            collective.recv(x, 1, group)
            same(x, of(0) * 2, "recv")
        else:
            collective.recv(x, 0, group)
            x *= 2
            collective.send(x, 0, group)
        collective.barrier(group)
        assert (collective.get_rank(group), collective.get_collective_group_size(group)) == (self.rank, SIZE)

    @staticmethod
    def numpy(x):
        return x.copy()

    @staticmethod
    def torch(x):
        import torch

        return torch.tensor(x)

    def torchs_types(self, group):
        import torch

        x = torch.full((5,), self.rank + 1.0, dtype=torch.bfloat16)
        outs = [torch.zeros(5, dtype=torch.bfloat16) for _ in range(SIZE)]
        collective.allgather(outs, x, group)
        collective.allreduce(x, group)
        assert x.tolist() == [3.0] * 5 and [out[0].item() for out in outs] == [1.0, 2.0], (x, outs)
        parameter = torch.nn.Parameter(torch.ones(3))
        collective.allreduce(parameter, group)
        assert parameter.tolist() == [2.0] * 3, parameter
        mixed = [np.zeros(3, np.float32) for _ in range(SIZE)]
        collective.allgather(mixed, torch.full((3,), float(self.rank)), group)
        assert [m.tolist() for m in mixed] == [[0.0] * 3, [1.0] * 3], mixed

    def refused(self, group):
        x = np.zeros(3)
        handle = collective.get_group_handle(group)
        raises(ValueError, ["one tensor for each process", "What to do"], handle.allreduce, [x, x])
        raises(ValueError, ["shapes [(3,), (4,)]", "What to do"], collective.allgather, [x, np.zeros(4)], x, group)
        raises(TypeError, ["strides", "What to do"], collective.allreduce, np.zeros((4, 4))[:, 0], group)
        collective.barrier(group)

    def leave_a_stale_address(self, group):
        """As rank 0 of an attempt that ended before all had joined."""
        from ray.experimental import internal_kv

        place = json.dumps({"store": "tcp://127.0.0.1:1", "job": "ray-old", "secret": "x" * 32})
        internal_kv._internal_kv_put(tutti.ray._key(group), place, True, namespace=tutti.ray.NAMESPACE)

    def waits_alone(self, group):
        error = raises(tutti.TimedOutError, [f"group '{group}'", "rank 1: rank 0 opened no store within 1 s",
                                             "What to do"], self.join, group)
        assert error.rank == 0

    def loses_rank_1(self, group):
        x = np.ones(4)
        error = raises(tutti.PeerLostError, "rank 1", collective.allreduce, x, group)
        assert error.rank == 1, error

    def process(self):
        return os.getpid()


def everywhere(members, method, *arguments):
    return ray.get([getattr(member, method).remote(*arguments) for member in members], timeout=120)


ray.init(num_cpus=3, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=True)
members = [Member.remote(rank) for rank in range(SIZE)]


def by_the_actors():
    everywhere(members, "join", "own")
    everywhere(members, "collectives", "own", "numpy")
    everywhere(members, "refused", "own")
    everywhere(members, "leave", "own")


def torchs_tensors():
    everywhere(members, "join", "torch")
    everywhere(members, "collectives", "torch", "torch")
    everywhere(members, "torchs_types", "torch")
    everywhere(members, "leave", "torch")


def by_the_driver():
    collective.create_collective_group(members, SIZE, list(range(SIZE)), "tutti", "declared")
    everywhere(members, "collectives", "declared", "numpy")
    everywhere(members, "leave", "declared")


def a_name_again():
    """Also after an attempt that failed, and in other processes."""
    for _ in range(2):
        everywhere(members, "join", "again")
        everywhere(members, "collectives", "again", "numpy")
        everywhere(members, "leave", "again")
    ray.get(members[0].leave_a_stale_address.remote("again"))
    others = [members[0], Member.remote(1)]
    late = others[1].join.remote("again")
    time.sleep(0.5)  # it has read the stale address by then, as a rule
    ray.get([others[0].join.remote("again"), late], timeout=120)
    everywhere(others, "collectives", "again", "numpy")


def several_groups():
    everywhere(members, "join", "one")
    everywhere(members, "join", "two")
    for group in ("one", "two", "one"):
        everywhere(members, "collectives", group, "numpy")


def rank_0_does_not_come():
    lonely = Member.remote(1, {"TUTTI_TIMEOUT_MS": "1000"})
    ray.get(lonely.waits_alone.remote("lonely"), timeout=120)


def an_actor_dies():
    everywhere(members, "join", "lost")
    pending = members[0].loses_rank_1.remote("lost")
    time.sleep(0.3)  # it waits inside the call by then, as a rule
    ray.kill(members[1])
    ray.get(pending, timeout=120)


def has_torch():
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


for test in (by_the_actors, torchs_tensors, by_the_driver, a_name_again, several_groups, rank_0_does_not_come,
             an_actor_dies):
    if test is torchs_tensors and not has_torch():
        print("CASE torchs_tensors: left out, there is no torch", flush=True)
        continue
    test()
    print(f"CASE {test.__name__}", flush=True)
sys.stdout.flush()
ray.shutdown()
