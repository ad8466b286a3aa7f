"""Runs a program of torchft's as two replicas: replicas.py PROGRAM [ARGUMENT…]. Each replica has a torchrun of its own.

This process is the lighthouse. A replica finds its number in the variable REPLICA.
"""
import os
import subprocess
import sys
import time

from torchft.coordination import LighthouseServer

LIMIT_S = 220
lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=10_000)
command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--rdzv-backend", "c10d",
           "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1", *sys.argv[1:]]
replicas = [subprocess.Popen(command, env={**os.environ, "TORCHFT_LIGHTHOUSE": lighthouse.address(), "REPLICA": str(number)})
            for number in range(2)]
end = time.monotonic() + LIMIT_S
try:
    failed = [replica.wait(max(0, end - time.monotonic())) for replica in replicas] != [0, 0]
finally:
    for replica in replicas:
        replica.kill()
        replica.wait()
    lighthouse.shutdown()
sys.exit(failed)
