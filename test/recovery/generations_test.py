"""A process that lives through many communicators, and through many deaths of others, holds no more than before, and
the dead leave no shared memory.

TUTTI_TEST_GENERATIONS: the communicators of a job (60 by default, 500 in the long tier).
"""
import itertools
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import unittest

from processes import files_left

GENERATIONS_PROGRAM = os.environ["TUTTI_GENERATIONS"]
TIER = os.environ.get("TUTTI_TEST_TIER", "default")
TIMES = int(os.environ.get("TUTTI_TEST_GENERATIONS", "500" if TIER == "long" else "60"))
MAX_RANKS = int(os.environ.get("TUTTI_TEST_MAX_RANKS", "12"))
SANITIZED = bool(os.environ.get("TUTTI_TEST_MAX_RANKS"))
# Transports over networks' own libraries, where they are built.
FABRICS = os.environ.get("TUTTI_FABRICS", "").split()
PATIENCE_S = 120
CENSUS = re.compile(r"census (\w+) (\d+) (\d+) (\d+)(.*)")


class Census:
    """The holdings of a process: descriptors, mapped segments of shared memory, resident memory."""

    def __init__(self, found):
        self.when, self.files, self.maps, self.rss_kb = found[1], int(found[2]), int(found[3]), int(found[4])
        self.text = found[0]


def output_until_done(process):
    """The lines to "done", after which the process waits for the script; all lines of a process that ends before."""
    return "".join(itertools.takewhile(lambda line: line != "done\n", process.stdout))


def run(ranks, settings, *arguments):
    """The census of each rank, in the order in which it took them."""
    files = files_left()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}
    with tempfile.TemporaryDirectory() as store:
        env = {**clean, "TUTTI_SIZE": str(ranks), "TUTTI_STORE": f"file://{store}", **settings,
               "TUTTI_SECRET": secrets.token_hex(16), "TUTTI_TIMEOUT_MS": "100000", "TUTTI_IFACE": "127.0.0.1",
               "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
        processes = [subprocess.Popen([GENERATIONS_PROGRAM, *arguments], env={**env, "TUTTI_RANK": str(rank)},
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                     for rank in range(ranks)]
        try:
            # A rank that ended before the others are done would change their census.
            outputs = [output_until_done(process) for process in processes]
            for process in processes:
                process.communicate("\n", timeout=PATIENCE_S)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        left = files_left({process.pid for process in processes}) - files
        if left:
            raise AssertionError(f"{ranks} ranks left {left} in /dev/shm")
        for rank, (process, output) in enumerate(zip(processes, outputs)):
            killed_itself = arguments[0] == "deaths" and rank > 0
            expected = -signal.SIGKILL if killed_itself else 0
            if process.returncode != expected:
                raise AssertionError(f"rank {rank} of {ranks} ended with {process.returncode} instead of {expected}; "
                                     f"it printed: {output}")
        return [[Census(found) for found in CENSUS.finditer(output)] for output in outputs]


class Leaks:
    settings = {"TUTTI_TRANSPORT": "shm"}
    # A process with many peers makes so many further segments and keeps them: each is four times as large as the last.
    more_segments = 1
    close_ms = 300  # from a peer's death until nothing that led to it is left

    def assert_no_more(self, before, after, spare_kb, segments=0):
        told = f"\n{before.text}\n{after.text}"
        print(self.id() + told, file=sys.stderr)
        self.assertLessEqual(after.files, before.files + segments, told)
        self.assertLessEqual(after.maps, before.maps + segments, told)
        if not SANITIZED:
            self.assertLess(after.rss_kb, before.rss_kb + spare_kb, told)

    def test_communicators_of_healthy_ranks(self):
        for census in run(4, self.settings, "parts", str(TIMES)):
            for early, late in zip(census[::2], census[1::2]):
                self.assertEqual((early.when, late.when), ("early", "late"))
                self.assert_no_more(early, late, 4000)

    def test_the_last_of_many_holds_as_much_as_the_last_of_few(self):
        few, many = (run(ranks, self.settings, "deaths", str(self.close_ms))[0][-1] for ranks in (3, MAX_RANKS))
        self.assert_no_more(few, many, 6000, self.more_segments)


class Shm(Leaks, unittest.TestCase):
    pass


class Tcp(Leaks, unittest.TestCase):
    settings = {"TUTTI_TRANSPORT": "tcp"}
    more_segments = 0


@unittest.skipUnless("ucx" in FABRICS, "built without UCX")
class Ucx(Leaks, unittest.TestCase):
    settings = {"TUTTI_TRANSPORT": "ucx"}
    close_ms = 2500  # UCX finds a death in its shared memory after up to a second


@unittest.skipUnless("ucx" in FABRICS, "built without UCX")
class UcxOverTcp(Leaks, unittest.TestCase):
    settings = {"TUTTI_TRANSPORT": "ucx", "UCX_TLS": "tcp,self"}
    more_segments = 0


@unittest.skipUnless("ofi" in FABRICS, "built without libfabric")
class Ofi(Leaks, unittest.TestCase):
    settings = {"TUTTI_TRANSPORT": "ofi"}
    more_segments = 0


if __name__ == "__main__":
    unittest.main()
