"""Ranks are killed at random moments, and the others go on in smaller communicators.

TUTTI_TEST_KILLS: the number of kills for each transport, about (100 by default, 1,000 in the long tier; growth_test.py
kills 20 more of each). TUTTI_TEST_SEED repeats the choices of a run, but not the system's timing.
"""
import itertools
import os
import random
import statistics
import sys
import time
import unittest
import zlib

from job import Job
from processes import Process, files_left

TIER = os.environ.get("TUTTI_TEST_TIER", "default")
KILLS = int(os.environ.get("TUTTI_TEST_KILLS", "1000" if TIER == "long" else "100"))
SEED = int(os.environ.get("TUTTI_TEST_SEED", random.SystemRandom().randrange(1 << 31)))
MAX_RANKS = min(6, int(os.environ.get("TUTTI_TEST_MAX_RANKS", "6")))
# Transports over networks' own libraries, where they are built.
FABRICS = os.environ.get("TUTTI_FABRICS", "").split()
MENUS = ("idle", "small", "large", "messages,several", "split,dup", "plan,small", "all")
JOIN_TIMEOUT_MS = 10_000  # ranks wait so long for one that was killed before it could join
LONGEST_US = 3000  # most calls that make a communicator take less


class Losses:
    """Cases of one transport."""
    transport = "shm"
    hosts = 1
    part = 1  # of the kills of a transport

    def setUp(self):
        self.random = random.Random(SEED ^ zlib.crc32(self.id().encode()))
        self.files = files_left()
        self.took_us, self.ends = [], 0

    def tearDown(self):
        took_us = self.took_us or [0]
        print(f"{self.id()}: {self.ends} ranks ended; new communicators took {statistics.median(took_us)} us (median), "
              f"{max(took_us)} us at most; TUTTI_TEST_SEED={SEED}", file=sys.stderr)
        self.assertEqual(files_left(Process.pids) - self.files, set())

    def job(self, ranks, menu, **how):
        return Job(ranks, self.random.randrange(1 << 31), menu, transport=self.transport, hosts=self.hosts, **how)

    def ranks(self, least):
        return self.random.randint(min(least, MAX_RANKS), MAX_RANKS)

    def repeat(self, share, run):
        """Calls run() until that part of the kills has been made. run() returns its job, which is over."""
        wanted = max(1, round(KILLS * share * self.part))
        while self.ends < wanted:
            job = run()
            self.took_us += job.took_us
            self.ends += len(job.ended)

    def doom(self, ranks, moments, most_often):
        return [f"{rank}:{self.random.choice(moments)}:{self.random.randint(1, most_often)}:"
                f"{self.random.randint(0, LONGEST_US)}" for rank in ranks]

    def some(self, ranks):
        """Some ranks of a job, but not all."""
        return self.random.sample(range(ranks), self.random.randint(1, ranks - 1))

    def kill_until_one_is_left(self, choose, menu):
        """choose(alive): the ranks that are killed at once."""
        with self.job(self.ranks(3), menu) as job:
            job.wait_until_started()
            while len(job.alive) > 1:
                victims = choose(job.alive)
                time.sleep(self.random.uniform(0, 0.02))
                job.kill(victims)
                job.wait_until_gone_on()
            job.stop()
        return job

    def end_by_doom(self, ranks, menu, doomed):
        with self.job(ranks, menu, doomed=doomed) as job:
            job.wait_until_doomed_have_ended()
            job.wait_until_gone_on()
            job.stop()
        return job

    def test_one_after_the_other(self):
        menus = itertools.cycle(self.random.sample(MENUS, len(MENUS)))
        self.repeat(0.3, lambda: self.kill_until_one_is_left(lambda alive: [self.random.choice(alive)], next(menus)))

    def test_several_at_once(self):
        def choose(alive):
            return self.random.sample(alive, self.random.randint(min(2, len(alive) - 1), len(alive) - 1))

        self.repeat(0.15, lambda: self.kill_until_one_is_left(choose, "all"))

    def test_always_the_first_rank(self):
        self.repeat(0.1, lambda: self.kill_until_one_is_left(lambda alive: alive[:1], "all"))

    def test_while_the_others_regroup(self):
        """One rank is killed. Others end themselves some microseconds after they have begun to go on without it."""
        def run():
            ranks = self.ranks(4)
            first, *others = self.random.sample(range(ranks), self.random.randint(2, ranks - 1))
            doomed = self.doom(others, ("revoke", "shrink after a failure"), 1)
            with self.job(ranks, "small,idle", doomed=doomed) as job:
                job.wait_until_started()
                time.sleep(self.random.uniform(0, 0.01))
                job.kill([first])
                job.wait_until_gone_on()
                job.stop()
            return job

        self.repeat(0.25, run)

    def test_while_ranks_make_communicators_or_agree(self):
        def run():
            ranks = self.ranks(3)
            moments = ("split", "dup", "agree", "agree to go on", "shrink")
            return self.end_by_doom(ranks, "split,dup", self.doom(self.some(ranks), moments, 3))

        self.repeat(0.15, run)

    def test_ranks_that_are_alive_are_left_out(self):
        def run():
            with self.job(self.ranks(4), "small,messages,retire") as job:
                job.wait_until(lambda: job.ended, "left a rank out")
                job.kill([self.random.choice(job.alive)])
                job.wait_until_gone_on()
                job.wait_until(lambda: len(job.alive) <= 2, "left all out but two")
                job.stop()
            return job

        self.repeat(0.05, run)


class Joining:
    def test_while_all_join(self):
        """Ranks are killed in the first 50 ms of a job. Each of the others gets an error, or goes on without them."""
        def run():
            ranks = self.ranks(2)
            with self.job(ranks, "small", timeout_ms=JOIN_TIMEOUT_MS) as job:
                job.wait_until_one_joins()
                time.sleep(self.random.uniform(0, 0.05))
                job.kill(self.some(ranks))
                job.wait_until_gone_on()
                job.stop()
            self.unable += len(job.unable)
            return job

        self.unable = 0
        self.repeat(1, run)
        print(f"{self.id()}: {self.unable} ranks could not join", file=sys.stderr)


class Shm(Losses, Joining, unittest.TestCase):
    pass


class Tcp(Losses, Joining, unittest.TestCase):
    transport = "tcp"


@unittest.skipUnless("ucx" in FABRICS, "built without UCX")
class Ucx(Losses, unittest.TestCase):
    transport = "ucx"


@unittest.skipUnless("ofi" in FABRICS, "built without libfabric")
class Ofi(Losses, unittest.TestCase):
    transport = "ofi"


class TwoHosts(Losses, unittest.TestCase):
    """Shared memory inside two hosts, which this machine acts, and TCP between them."""
    transport = "shm,tcp"
    hosts = 2
    part = 0.25


class Threads(Losses, unittest.TestCase):
    """Ranks are threads; a rank ends by aborting its communicator and leaving it."""
    transport = "inproc"
    part = 0.25
    # A thread cannot be killed.
    test_one_after_the_other = test_several_at_once = test_always_the_first_rank = None
    test_while_the_others_regroup = test_ranks_that_are_alive_are_left_out = None

    def test_ranks_abort_in_operations(self):
        def run():
            ranks = self.ranks(2)
            moments = ("idle", "small", "large", "messages", "plan")
            return self.end_by_doom(ranks, "all", self.doom(self.some(ranks), moments, 2))

        self.repeat(0.5, run)


class StoreHost(Losses, unittest.TestCase):
    """Rank 0 hosts the tcp store, which ends with it."""
    transport = "tcp"
    part = 0.25

    def job(self, ranks, menu, **how):
        return super().job(ranks, menu, store="tcp", **how)


if __name__ == "__main__":
    unittest.main()
