"""torchft's Manager over tutti: three replicas train, the last dies at step 4, the others go on to the end.

managers.py starts the lighthouse and the replicas, which are managers.py REPLICA LIGHTHOUSE."""
import datetime
import os
import signal
import subprocess
import sys

import torch
import torch.distributed as dist
from torchft import Manager, Optimizer
from torchft.coordination import LighthouseServer

from tutti.torch.ft import ProcessGroupTutti

REPLICAS, STEPS, LAST_OF_THE_DEAD = 3, 10, 4
LIMIT_S = 120


def replica(number, lighthouse):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    limit = datetime.timedelta(seconds=30)
    group = ProcessGroupTutti(timeout=limit)
    manager = Manager(pg=group, load_state_dict=model.load_state_dict, state_dict=model.state_dict, min_replica_size=2,
                      timeout=limit, quorum_timeout=limit, rank=0, world_size=1, store_addr="127.0.0.1",
                      store_port=store.port, lighthouse_addr=lighthouse, replica_id=f"replica_{number}",
                      hostname="127.0.0.1")
    optimizer = Optimizer(manager, torch.optim.SGD(model.parameters(), 0.1))
    members = []
    while manager.current_step() < STEPS:
        optimizer.zero_grad()  # starts the quorum
        x = torch.arange(8.0).reshape(2, 4) / 8 + number
        loss = (model(x) - 1).square().mean()
        loss.backward()
        for work in [manager.allreduce(p.grad) for p in model.parameters()]:
            work.wait()
        members.append(manager.num_participants())
        optimizer.step()
        if number == REPLICAS - 1 and manager.current_step() == LAST_OF_THE_DEAD:
            os.kill(os.getpid(), signal.SIGKILL)
    print(f"REPLICA {number} {members} {model.weight.sum().item():.9f}", flush=True)
    group.shutdown()  # in order: the other replica may still be in its last step
    manager.shutdown()
    os._exit(0)  # torchft's threads may go on


def start():
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=10_000, heartbeat_timeout_ms=1000)
    replicas = [subprocess.Popen([sys.executable, __file__, str(number), lighthouse.address()], text=True,
                                 stdout=subprocess.PIPE) for number in range(REPLICAS)]
    try:
        told = [process.communicate(timeout=LIMIT_S)[0] for process in replicas]
    finally:
        for process in replicas:
            process.kill()
            process.wait()
        lighthouse.shutdown()
    print("".join(told))
    assert [process.returncode for process in replicas] == [0, 0, -signal.SIGKILL], told
    lines = ["".join(text.splitlines()[-1:]).split() for text in told[:2]]
    assert all(line[0] == "REPLICA" for line in lines) and lines[0][-1] == lines[1][-1], "the models differ"
    assert "3," in told[0] and lines[0][-2].rstrip("]") == "2", "the groups were not of three and then of two"
    print("MANAGERS ok", flush=True)


if len(sys.argv) == 1:
    start()
else:
    replica(int(sys.argv[1]), sys.argv[2])
