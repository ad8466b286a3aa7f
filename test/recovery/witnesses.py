"""Jobs of witness's ranks, of which one is killed: when the others' calls fail, and why."""
import os
import re
import secrets
import select
import subprocess
import tempfile
import time

WITNESS = os.environ["TUTTI_TEST_WITNESS"]
PATIENCE_S = 60
FAILED = re.compile(r"failed (\d+) (\d+) (\d+) (-?\d+): (.*)", re.DOTALL)


class Failed:
    """A survivor's call that failed: the time since the kill, and the error."""

    def __init__(self, line, killed_ns):
        said = FAILED.fullmatch(line)
        if not said:
            raise AssertionError(f"not the end of a call: {line!r}")
        self.rank, self.status, self.culprit, self.text = int(said[1]), int(said[3]), int(said[4]), said[5]
        self.after_ms = (int(said[2]) - killed_ns) / 1e6


def read_line(process):
    if not select.select([process.stdout], [], [], PATIENCE_S)[0]:
        raise AssertionError(f"a rank said nothing for {PATIENCE_S} s")
    return process.stdout.readline().decode(errors="replace").strip()


def kill_one(ranks, resident_mb, victim, settings=(), hosts=1):
    """Kills that rank, which has so much memory, while all call. Returns the failed call of each other rank, and the
    victim's process. The ranks act as if they were on so many hosts, in turn."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}
    with tempfile.TemporaryDirectory() as store:
        env = {**clean, "TUTTI_SIZE": str(ranks), "TUTTI_STORE": f"file://{store}", "TUTTI_TRANSPORT": "shm,tcp",
               "TUTTI_SECRET": secrets.token_hex(16), "TUTTI_TIMEOUT_MS": "120000", "TUTTI_IFACE": "127.0.0.1",
               "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0", **dict(settings)}
        processes = [subprocess.Popen([WITNESS, str(resident_mb if rank == victim else 1)],
                                      env={**env, "TUTTI_RANK": str(rank),
                                           **({"TUTTI_HOST_ID": f"host{rank % hosts}"} if hosts > 1 else {})},
                                      stdout=subprocess.PIPE) for rank in range(ranks)]
        try:
            for rank, process in enumerate(processes):
                if read_line(process) != f"ready {rank}":
                    raise AssertionError(f"rank {rank} did not start")
            time.sleep(0.02)
            killed_ns = time.monotonic_ns()
            processes[victim].kill()
            failed = [Failed(read_line(process), killed_ns) for rank, process in enumerate(processes) if rank != victim]
            for process in processes:
                process.wait(PATIENCE_S)
            return failed, processes[victim].pid
        finally:
            for process in processes:
                process.kill()
                process.wait()
                process.stdout.close()
