"""Ranks are killed, also while they grow, and new processes take their places.

TUTTI_TEST_KILLS: about how many for each transport (12 by default, 100 in the long tier). TUTTI_TEST_SEED repeats the
choices of a run, but not the system's timing.
"""
import contextlib
import os
import pathlib
import random
import re
import secrets
import signal
import socket
import sys
import tempfile
import time
import unittest
import zlib

from processes import Process, files_left, free_port

GROWER = os.environ["TUTTI_GROWER"]
TIER = os.environ.get("TUTTI_TEST_TIER", "default")
KILLS = int(os.environ.get("TUTTI_TEST_KILLS", "100" if TIER == "long" else "12"))
SEED = int(os.environ.get("TUTTI_TEST_SEED", random.SystemRandom().randrange(1 << 31)))
# Transports over networks' own libraries, where they are built.
FABRICS = os.environ.get("TUTTI_FABRICS", "").split()
SOON_S = 60
SAID = re.compile(r"(verified|census) (\d+) (\d+)(?: (\d+))?")


class Member(Process):
    def __init__(self, command, env):
        super().__init__(command, env)
        self.place = None  # (generation, rank) of the last communicator that has worked
        self.census = []  # (descriptors, maps)

    def read(self):
        for line in self.new_lines() or []:
            if line.startswith("WRONG"):
                raise AssertionError(line)
            said = SAID.fullmatch(line)
            if said and said[1] == "verified":
                self.place = int(said[2]), int(said[3])
            elif said:
                self.census.append((int(said[2]), int(said[3])))


class Job:
    def __init__(self, size, transport, hosts, store, **more_env):
        self.folder = tempfile.TemporaryDirectory()
        self.stop_file = os.path.join(self.folder.name, "stop")
        self.size, self.hosts = size, hosts
        self.ended = []
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}
        self.env = {**clean, "TUTTI_TIMEOUT_MS": os.environ.get("TUTTI_TEST_TIMEOUT_MS", "50000"),
                    "TUTTI_SECRET": secrets.token_hex(16),
                    "TUTTI_IFACE": "127.0.0.1", "TUTTI_TRANSPORT": transport,
                    "TUTTI_STORE": store or f"file://{self.folder.name}/store",
                    "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0", **more_env}
        self.started = 0
        self.processes = [self.start(TUTTI_RANK=str(rank), TUTTI_SIZE=str(size)) for rank in range(size)]

    def start(self, **more):
        host = {"TUTTI_HOST_ID": f"host{self.started % self.hosts}"} if self.hosts > 1 else {}
        self.started += 1
        return Member([GROWER, str(self.size), self.stop_file], {**self.env, **host, **more})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes + self.ended:
            process.popen.kill()
            process.popen.wait()
            process.popen.stdout.close()
        self.folder.cleanup()

    def fail(self, what):
        ends = []
        for process in self.ended + self.processes:
            process.new_lines()
            lines = process.text.decode(errors="replace").splitlines()
            ends.append(f"process {process.popen.pid} (exit status {process.popen.poll()}):\n  " +
                        "\n  ".join(lines[-12:]))
        raise AssertionError(what + "\n" + "\n".join(ends))

    def wait_until(self, holds, what):
        end = time.monotonic() + SOON_S
        while not holds():
            if time.monotonic() > end:
                self.fail(f"after {SOON_S} s the ranks had not {what}")
            time.sleep(0.005)
            for process in self.processes:
                try:
                    process.read()
                except AssertionError as error:
                    self.fail(str(error))
                if process.popen.poll() not in (None, 0):
                    self.fail(f"a process ended with {process.popen.returncode}")

    def is_whole(self):
        places = [process.place for process in self.processes]
        return (None not in places and len({generation for generation, _ in places}) == 1 and
                sorted(rank for _, rank in places) == list(range(self.size)))

    def wait_until_whole(self):
        self.wait_until(self.is_whole, "grown to their number again")

    def replace(self, victims, delay_s=0.0):
        """Kills these processes, and starts as many newcomers."""
        for victim in victims:
            victim.popen.send_signal(signal.SIGKILL)
        time.sleep(delay_s)
        for victim in victims:
            self.processes.remove(victim)
            self.ended.append(victim)
            self.processes.append(self.start(TUTTI_JOIN="1"))

    def stop(self):
        pathlib.Path(self.stop_file).touch()
        self.wait_until(lambda: all(process.popen.poll() is not None for process in self.processes), "ended")


class Growth:
    transport, hosts, env = "shm", 1, {}
    more_files = 2

    def setUp(self):
        self.random = random.Random(SEED ^ zlib.crc32(self.id().encode()))
        self.files = files_left()
        print(f"{self.id()}: TUTTI_TEST_SEED={SEED}", file=sys.stderr)

    def tearDown(self):
        self.assertEqual(files_left(Process.pids) - self.files, set())

    def job(self, size=3):
        return Job(size, self.transport, self.hosts, self.store(), **self.env)

    def store(self):
        """None: a directory."""

    def test_ten_times_in_a_row(self):
        with self.job() as job:
            job.wait_until_whole()
            stays = job.processes[1]
            for _ in range(10):
                job.replace([self.random.choice([each for each in job.processes if each is not stays])])
                job.wait_until_whole()
            job.stop()
        print(f"{self.id()}: {stays.census}", file=sys.stderr)
        self.assertGreaterEqual(len(stays.census), 11)
        # The number of connections of a rank depends on the hosts of the others.
        for early, late in zip(map(max, zip(*stays.census[:6])), stays.census[-1]):
            self.assertLessEqual(late, early + self.more_files)

    def test_at_random_moments(self):
        """Members, newcomers, rank 0: one or several, while the others make a smaller or a larger communicator."""
        with self.job(4) as job:
            job.wait_until_whole()
            kills = 0
            while kills < KILLS:
                for _ in range(self.random.randint(1, 4)):
                    victims = self.random.sample(job.processes, self.random.choice((1, 1, 1, 2)))
                    if all(process in victims or process.place is None for process in job.processes):
                        continue  # one member survives
                    job.replace(victims, self.random.uniform(0, 0.02))
                    kills += len(victims)
                    time.sleep(self.random.uniform(0, 0.06))
                job.wait_until_whole()
            job.stop()


class Shm(Growth, unittest.TestCase):
    pass


class Tcp(Growth, unittest.TestCase):
    transport = "tcp"


@unittest.skipUnless("ucx" in FABRICS, "built without UCX")
class Ucx(Growth, unittest.TestCase):
    """Over TCP: a rank that is killed while it writes to UCX's shared memory may end another one, too."""
    transport, env = "ucx", {"UCX_TLS": "tcp,self"}


@unittest.skipUnless("ofi" in FABRICS, "built without libfabric")
class Ofi(Growth, unittest.TestCase):
    transport = "ofi"


class TwoHosts(Growth, unittest.TestCase):
    transport, hosts = "shm,tcp", 2


class StoreHost(Growth, unittest.TestCase):
    """A rank hosts the tcp store, which ends with it; the lowest rank that remains serves it anew."""
    transport = "tcp"
    more_files = 16  # of the server, once the rank that stays serves the store

    def store(self):
        return f"tcp://127.0.0.1:{free_port()}"

    def test_the_host_dies_each_time(self):
        with self.job() as job:
            job.wait_until_whole()
            for _ in range(5):
                job.replace([min(job.processes, key=lambda each: each.place[1])])
                job.wait_until_whole()
            job.stop()


class StorePlaces(StoreHost):
    """The store has two places, and the first one is taken by another program."""
    test_ten_times_in_a_row = test_at_random_moments = None

    def store(self):
        other = socket.socket()
        other.bind(("127.0.0.1", 0))  # refuses connections, because it does not listen
        self.addCleanup(other.close)
        return f"tcp://127.0.0.1:{other.getsockname()[1]},tcp://127.0.0.1:{free_port()}"


class JobsAtOneStore(unittest.TestCase):
    """Two jobs at one tcp store: a process of either serves it, and each job outlives that process's end."""

    def test_each_goes_on_whoever_serves_the_store(self):
        store, secret = f"tcp://127.0.0.1:{free_port()}", secrets.token_hex(16)
        with contextlib.ExitStack() as ends:
            jobs = [ends.enter_context(Job(3, "shm,tcp", 1, store, TUTTI_SECRET=secret, TUTTI_JOB=name))
                    for name in ("first", "second")]
            for _ in range(3):
                for job in jobs:
                    job.wait_until_whole()
                for job in jobs:
                    job.replace([min(job.processes, key=lambda each: each.place[1])])
            for job in jobs:
                job.wait_until_whole()
            jobs[0].stop()
            jobs[1].replace([min(jobs[1].processes, key=lambda each: each.place[1])])
            jobs[1].wait_until_whole()
            jobs[1].stop()


if __name__ == "__main__":
    unittest.main()
