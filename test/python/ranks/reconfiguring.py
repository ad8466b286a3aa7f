"""torch.distributed._reconfigure with four processes, over the backend that BACKEND names: gloo or tutti.

Prints the rank that each call gives. The processes exchange their handles in a FileStore. With tutti, rank 3 then kills
itself while the others have work pending, and a fifth process joins them.
"""
import os
import signal
import subprocess
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

import tutti.torch
from expect import raises

if not hasattr(dist, "_reconfigure"):
    print("RECONFIGURE this torch cannot")
    sys.exit(0)
backend, me = os.environ["BACKEND"], int(os.environ["RANK"])
newcomer = me == 4
store = dist.FileStore(os.path.join(os.environ["TUTTI_TEST_FOLDER"], "store"))
store.set_timeout(timedelta(seconds=100))


def begin():
    # Gloo's processes need a store in common for the meeting itself.
    dist.init_process_group(backend, store=dist.PrefixStore("group", store), rank=0 if newcomer else me,
                            world_size=5 if newcomer else 4, timeout=timedelta(seconds=60), enable_reconfigure=True)


def exchanged(uuid, members):
    """The handles of these processes, as they are now."""
    store.set(f"{uuid}/{me}", dist._get_reconfigure_handle())
    return [store.get(f"{uuid}/{member}").decode() for member in members]


def check_sum(members):
    x = torch.full((1000,), 10.0 ** me)
    dist.all_reduce(x)
    assert torch.equal(x, torch.full((1000,), sum(10.0 ** member for member in members))), x


def meet(uuid, members, as_set=False):
    own = dist._get_reconfigure_handle()
    handles = exchanged(uuid, members)
    work = dist._reconfigure(uuid, set(handles) if as_set else handles, timeout=timedelta(seconds=60))
    assert work.wait() and work.is_completed() and work.get_future().wait() == []
    wanted = sorted(handles).index(own) if as_set else members.index(me)
    assert (dist.get_rank(), dist.get_world_size()) == (wanted, len(members)), (dist.get_rank(), wanted)
    check_sum(members)
    if not as_set:  # the handles' order is different in each run
        print(f"RANK of {me} in call {uuid}: {dist.get_rank()} of {dist.get_world_size()}", flush=True)


def before_the_first_call():
    assert dist._supports_reconfigure() and (dist.get_rank(), dist.get_world_size()) == (me, 4)
    raises(RuntimeError, "has not been initialized", dist.all_reduce, torch.ones(1))


def wrong_calls():
    own = dist._get_reconfigure_handle()
    for uuid, handles in ((20, []), (21, ["no handle"]), (22, [own, own]), (23, ["tutti:00", own]), (4, [own])):
        raises((RuntimeError, ValueError), "", dist._reconfigure, uuid, handles)
    check_sum(range(4))


def after_a_loss():
    pending = dist.irecv(torch.zeros(4), dist.get_world_size() - 1) if me != 3 else None
    if me == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    raises(tutti.torch.PeerLostError, "rank 3", dist.barrier)
    raises(tutti.torch.PeerLostError, "", pending.wait)
    assert tutti.torch.last_error().rank == 3
    meet(30, [2, 0, 1])
    assert tutti.torch.last_error() is None
    assert tutti.torch.backend_of()._get_sequence_number_for_group() == 1
    # A healthy group's pending work ends, too.
    pending = dist.irecv(torch.zeros(4), (dist.get_rank() + 1) % 3)
    meet(31, [0, 1, 2])
    raises(tutti.torch.AbortedError, "", pending.wait)


def with_a_newcomer():
    started = subprocess.Popen([sys.executable, __file__], env={**os.environ, "RANK": "4"}) if me == 1 else None
    meet(40, [0, 4, 1, 2])
    assert not started or started.wait() == 0


begin()
if newcomer:
    meet(40, [0, 4, 1, 2])
else:
    before_the_first_call()
    for uuid, members in ((1, [0, 1, 2, 3]), (2, [3, 2, 1, 0]), (3, [1, 3, 0, 2])):
        meet(uuid, members)
    meet(4, [0, 1, 2, 3], as_set=True)
    meet(5, [0, 1, 2, 3])
    if backend == "tutti":
        wrong_calls()
        after_a_loss()
        with_a_newcomer()
dist.destroy_process_group()
print("RECONFIGURE ok")
