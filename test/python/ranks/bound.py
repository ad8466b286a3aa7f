"""A group that is bound to a device from the start: init_process_group(device_id=…). Acted out, as in devices.py."""
import torch
import torch.distributed as dist

import acted
from acted import DEVICE, put
from cases import case, equal, rank, run, size

acted.cuda.act()
dist.init_process_group("tutti", device_id=torch.device("cuda", DEVICE))


@case
def the_ranks_have_joined_already():
    """A batch is the first call, and only two of them take part in it."""
    if rank() > 1:
        return
    x = put(torch.full((100,), float(rank())))
    y = put(torch.zeros(100))
    other = 1 - rank()
    # The host way would wait for what is behind the gate.
    acted.cuda.gate(DEVICE)
    acted.cuda.add_one(x)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, other), dist.P2POp(dist.irecv, y, other)])
    assert not any(work.is_completed() for work in works)
    for work in works:
        work.wait()
    acted.cuda.open_gate()
    equal(acted.cuda.get(y), torch.full((100,), other + 1.0))


@case
def parts_of_it_have_their_own_groups():
    part = dist.new_group([0, 1])
    if rank() < 2:
        x = put(torch.ones(10))
        dist.all_reduce(x, group=part)
        equal(acted.cuda.get(x), torch.full((10,), 2.0))
        dist.destroy_process_group(part)
    alone = dist.new_group([size() - 1])
    if rank() == size() - 1:
        x = put(torch.ones(10))
        dist.all_reduce(x, group=alone)
        equal(acted.cuda.get(x), torch.ones(10))
        dist.destroy_process_group(alone)


@case
def nothing_was_done_that_a_driver_forbids():
    acted.check_violations()


run()
