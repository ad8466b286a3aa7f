"""Ranks of a training are killed at random moments; the others go on, with the parameters of the step's begin.

TUTTI_TEST_KILLS: about how many for each way to train (6 by default, 60 in the long tier). TUTTI_TEST_SEED repeats the
choices of a run, but not the system's timing.
"""
import collections
import os
import random
import re
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import zlib

LEARNER = os.environ["TUTTI_LEARNER"]
TIER = os.environ.get("TUTTI_TEST_TIER", "default")
KILLS = int(os.environ.get("TUTTI_TEST_KILLS", "60" if TIER == "long" else "6"))
SEED = int(os.environ.get("TUTTI_TEST_SEED", random.SystemRandom().randrange(1 << 31)))
SAID = re.compile(r"\[(\d+)\] step (\d+) ranks (\d+) hash (\d+) recoveries (\d+)")
SOON_S = 60
STEPS = 60


class Job:
    def __init__(self, ranks, transport, width, devices, mode):
        self.folder = tempfile.TemporaryDirectory()
        self.selector = selectors.DefaultSelector()
        self.about = f"{ranks} ranks over {transport}, {width} weights, {devices} devices, {mode}"
        self.steps = collections.defaultdict(dict)  # by rank, then step: (ranks, hash)
        self.recoveries = collections.Counter()
        self.text = collections.defaultdict(str)
        self.rest = collections.defaultdict(str)  # an incomplete line
        self.killed = []
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}
        env = {**clean, "TUTTI_SECRET": secrets.token_hex(16), "TUTTI_IFACE": "127.0.0.1", "TUTTI_SIZE": str(ranks),
               "TUTTI_STORE": f"file://{self.folder.name}", "TUTTI_TRANSPORT": transport, "TUTTI_TIMEOUT_MS": "120000"}
        self.processes = []
        for rank in range(ranks):
            process = subprocess.Popen([LEARNER, str(STEPS), str(width), str(devices), mode],
                                       env={**env, "TUTTI_RANK": str(rank)}, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT)
            self.processes.append(process)
            self.selector.register(process.stdout, selectors.EVENT_READ, rank)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdout.close()
        self.selector.close()
        self.folder.cleanup()

    def alive(self):
        return [rank for rank in range(len(self.processes)) if rank not in self.killed]

    def step(self):
        """The last step that some rank has finished, -1 at first."""
        return max((max(steps) for steps in self.steps.values()), default=-1)

    def read(self, patience_s):
        for key, _ in self.selector.select(patience_s):
            data = os.read(key.fd, 1 << 16).decode()
            if not data:
                self.selector.unregister(key.fileobj)
            self.text[key.data] += data
            *lines, self.rest[key.data] = (self.rest[key.data] + data).split("\n")
            for line in lines:
                if said := SAID.match(line):
                    rank, step, ranks, value, recoveries = map(int, said.groups())
                    self.steps[rank][step] = ranks, value
                    self.recoveries[rank] = recoveries

    def read_until(self, holds, what):
        end = time.monotonic() + SOON_S
        while not holds():
            if time.monotonic() > end:
                self.fail(f"the ranks had not {what} within {SOON_S} s")
            self.read(0.05)
            for rank in self.alive():
                if self.processes[rank].poll():
                    self.fail(f"rank {rank} failed before the ranks had {what}")

    def kill(self, rank):
        self.killed.append(rank)
        self.processes[rank].send_signal(signal.SIGKILL)

    def fail(self, what):
        ends = "".join(f"rank {rank}, killed: {rank in self.killed}, status {process.poll()}:\n" +
                       "".join(self.text[rank].splitlines(True)[-6:]) for rank, process in enumerate(self.processes))
        raise AssertionError(f"{what}\n{self.about}; killed {self.killed}\n{ends}")

    def check(self):
        """After all have ended: the ranks that are left agree in every step, bit for bit."""
        status = [process.wait(SOON_S) for process in self.processes]
        dead = [rank for rank in self.killed if status[rank] == -signal.SIGKILL]
        left = [rank for rank in range(len(status)) if rank not in dead]
        for rank in left:
            if status[rank] != 0 or set(self.steps[rank]) != set(range(STEPS)):
                self.fail(f"rank {rank} did not end the training")
        for step in range(STEPS):
            if len({self.steps[rank][step][1] for rank in left}) != 1:
                self.fail(f"the ranks' parameters differ after step {step}")
        # A rank may have died after the others had its part of the last step.
        late = [rank for rank in dead if max(self.steps[rank], default=-1) >= STEPS - 2]
        ranks = self.steps[left[0]][STEPS - 1][0]
        if not len(left) <= ranks <= len(left) + len(late):
            self.fail("the last step was not of all ranks that are left")
        if ranks < len(status) and self.recoveries[left[0]] < 1:
            self.fail("no rank has recovered")
        return len(dead) - len(late)


class Processes(unittest.TestCase):
    def run_ways(self, transport):
        choices = random.Random(SEED ^ zlib.crc32(self.id().encode()))
        kills = 0
        began = time.monotonic()
        while kills < KILLS:
            mode = choices.choice(("serial", "dag", "external"))
            ranks = choices.randint(2, 5)
            with Job(ranks, transport, choices.choice((8, 5000)), choices.choice((1, 1, 2)), mode) as job:
                while len(job.alive()) > 1 and (len(job.alive()) == ranks or choices.random() < 0.7):
                    wanted = job.step() + choices.randint(1, 8)
                    if wanted >= STEPS - 5:
                        break
                    job.read_until(lambda: job.step() >= wanted, f"finished step {wanted}")
                    time.sleep(choices.uniform(0, 0.004))
                    job.kill(choices.choice(job.alive()))
                    if len(job.alive()) > 1 and choices.random() < 0.3:  # while the others recover
                        time.sleep(choices.uniform(0, 0.003))
                        job.kill(choices.choice(job.alive()))
                job.read_until(lambda: not job.selector.get_map(), "ended")
                kills += job.check()
        print(f"{self.id()}: {kills} ranks killed in {time.monotonic() - began:.0f} s; TUTTI_TEST_SEED={SEED}",
              file=sys.stderr)

    def test_shared_memory(self):
        self.run_ways("shm")

    def test_tcp(self):
        self.run_ways("tcp")


if __name__ == "__main__":
    unittest.main()
