"""Ranks that are silent: hosts that are cut off, links that lead one way, processes that are stopped. No connection
ends, so only the heartbeat finds them. And ranks that seem silent, but are not."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import hosts

BEATING = os.environ["TUTTI_BEATING"]
HEARTBEAT_S = 0.5
COMPUTE_S = 3
# From the silence to the error: the heartbeat, the second look, and what a loaded machine adds.
LATEST_S = float(os.environ.get("TUTTI_TEST_LATEST_S", "3"))


class Job:
    """Ranks that make sums, one for each letter of the layout."""

    def __init__(self, test, network, layout, **env):
        self.network = network
        self.folder = tempfile.TemporaryDirectory()
        test.addCleanup(self.folder.cleanup)
        settings = {"TUTTI_TRANSPORT": "shm,tcp", "TUTTI_TIMEOUT_MS": "60000",
                    "TUTTI_HEARTBEAT_MS": str(int(HEARTBEAT_S * 1000)), **env}
        self.ranks = network.start(layout, BEATING, self.folder.name, str(COMPUTE_S * 1000), env=settings)
        self.until(lambda: all("ready" in text for text in self.texts()))
        time.sleep(2 * HEARTBEAT_S)  # every neighbour is watched

    def texts(self):
        return [hosts.said(process) for process in self.ranks]

    def until(self, done, patience_s=60):
        deadline = time.monotonic() + patience_s
        while not done():
            assert time.monotonic() < deadline, self.texts()
            time.sleep(0.02)

    def tell(self, name):
        (pathlib.Path(self.folder.name) / name).touch()

    def untell(self, name):
        (pathlib.Path(self.folder.name) / name).unlink()

    def send(self, rank, number):
        self.ranks[rank].send_signal(number)

    def count(self, what, ranks):
        return sum(bool(re.search("^" + what + " ", self.texts()[rank], re.M)) for rank in ranks)

    def end(self):
        self.tell("stop")
        return hosts.ends(self.ranks)


class Heartbeats(unittest.TestCase):
    def go_on(self, job, survivors, since, lost, cause="TUTTI_HEARTBEAT_MS"):
        """The survivors get an error that names a lost rank and its cause, shrink, and go on."""
        job.until(lambda: job.count("smaller", survivors) == len(survivors))
        for rank in survivors:
            text = job.texts()[rank]
            at_ms, error = re.search(r"^error (\d+) (.*)", text, re.M).groups()
            # A rank that revokes the communicator says why.
            self.assertRegex(error, "rank (%s) is gone: .*(%s)" % ("|".join(map(str, lost)), cause), text)
            self.assertLess(int(at_ms) / 1000 - since, LATEST_S * len(lost), text)
            self.assertGreater(int(at_ms) / 1000 - since, HEARTBEAT_S / 2, text)
            sizes = re.findall(r"^smaller \d+ (\d+)$", text, re.M)
            self.assertEqual(int(sizes[-1]), len(survivors), text)

    def right(self, job, survivors):
        for rank, (code, text) in enumerate(job.end()):
            if rank in survivors:
                self.assertEqual(code, 0, text)
                self.assertRegex(text, r"(?m)^sums \d+ %d$" % len(survivors))
            else:
                self.assertEqual(code, 3, text)

    def no_alarm(self, job):
        for code, text in job.end():
            self.assertEqual(code, 0, text)
            self.assertNotIn("error", text)

    def test_a_silent_host(self):
        with hosts.Hosts(3) as network:
            job = Job(self, network, "abc")
            since = time.monotonic()
            network.cable(2, "down")
            self.go_on(job, [0, 1], since, [2])
            # The other side is no majority.
            job.until(lambda: job.count("excluded", [2]) == 1)
            self.assertIn("cut off from the majority", job.texts()[2])
            self.right(job, [0, 1])

    def test_a_silent_host_with_a_whole_branch_of_the_tree(self):
        # Ranks 1 and 9 are on the host; rank 9's only neighbour is rank 1. Ranks 0, 2 and others remain.
        with hosts.Hosts(2) as network:
            job = Job(self, network, "abaaaaaaab")
            since = time.monotonic()
            network.cable(1, "down")
            survivors = [0, *range(2, 9)]
            self.go_on(job, survivors, since, [1, 9])
            job.until(lambda: job.count("excluded", [1, 9]) == 2)
            self.right(job, survivors)

    def test_the_host_of_rank_0(self):
        with hosts.Hosts(3) as network:
            job = Job(self, network, "abc")
            since = time.monotonic()
            network.cable(0, "down")
            self.go_on(job, [1, 2], since, [0])
            job.until(lambda: job.count("excluded", [0]) == 1)
            self.right(job, [1, 2])

    def test_two_halves(self):
        # Each side calls the other one silent; the one with rank 0 goes on.
        with hosts.Hosts(2) as network:
            job = Job(self, network, "aabb")
            since = time.monotonic()
            network.cable(1, "down")
            self.go_on(job, [0, 1], since, [2, 3])
            job.until(lambda: job.count("excluded", [2, 3]) == 2)
            network.cable(1, "up")
            self.right(job, [0, 1])

    def test_a_link_that_leads_one_way(self):
        for way in ("to", "from"):
            with self.subTest(way=way), hosts.Hosts(3) as network:
                job = Job(self, network, "abc")
                since = time.monotonic()
                network.cut(2, way)
                self.go_on(job, [0, 1], since, [2])
                job.until(lambda: job.count("excluded", [2]) == 1)
                self.right(job, [0, 1])

    def test_a_cut_that_heals_after_the_alarm(self):
        with hosts.Hosts(3) as network:
            job = Job(self, network, "abc")
            since = time.monotonic()
            network.cable(2, "down")
            self.go_on(job, [0, 1], since, [2])
            network.cable(2, "up")
            job.until(lambda: job.count("excluded", [2]) == 1)
            self.right(job, [0, 1])

    def test_a_cut_of_one_way_that_heals_after_the_alarm(self):
        for way in ("to", "from"):
            for cut, survivors in ((2, [0, 1]), (0, [1, 2])):
                with self.subTest(way=way, cut=cut), hosts.Hosts(3) as network:
                    job = Job(self, network, "abc")
                    since = time.monotonic()
                    network.cut(cut, way)
                    # A rank that hears nothing may have ended before the others have noticed its silence.
                    self.go_on(job, survivors, since, [cut], "TUTTI_HEARTBEAT_MS|its connection ended")
                    network.mend(cut, way)
                    job.until(lambda rank=cut, job=job: job.count("excluded", [rank]) == 1)
                    time.sleep(4 * HEARTBEAT_S)
                    self.right(job, survivors)
                    for rank in survivors:  # and none but the first alarm
                        self.assertEqual(len(re.findall("^error", job.texts()[rank], re.M)), 1, job.texts()[rank])

    def shrink_during_a_cut(self, way, cut_s, survivors):
        """Host 4 is lost. While ranks 0, 1 and 3 are inside tutti_comm_shrink and wait for rank 2, host 3 is cut off."""
        with self.subTest(way=way, cut_s=cut_s), hosts.Hosts(5) as network:
            job = Job(self, network, "abcde")
            job.tell("hold-2")
            since = time.monotonic()
            network.cable(4, "down")
            job.until(lambda: job.count("error", range(4)) == 4)
            time.sleep(HEARTBEAT_S / 2)  # ranks 0, 1 and 3 have called
            network.cut(3, way)
            time.sleep(cut_s)
            if 3 in survivors:
                network.mend(3, way)
            job.untell("hold-2")
            self.go_on(job, survivors, since, [4])
            excluded = [rank for rank in (3, 4) if rank not in survivors]
            if 3 in excluded:
                network.mend(3, way)
            job.until(lambda: job.count("excluded", excluded) == len(excluded))
            self.right(job, survivors)

    def test_a_cut_of_one_way_during_a_shrink(self):
        for way in ("to", "from"):
            self.shrink_during_a_cut(way, 0, [0, 1, 2])
            self.shrink_during_a_cut(way, 3 * HEARTBEAT_S, [0, 1, 2])

    def test_a_short_cut_of_one_way_during_a_shrink(self):
        for way in ("to", "from"):
            self.shrink_during_a_cut(way, HEARTBEAT_S / 4, [0, 1, 2, 3])

    def test_a_short_cut_is_no_alarm(self):
        with hosts.Hosts(2) as network:
            job = Job(self, network, "aabb")
            for _ in range(3):
                network.cable(1, "down")
                time.sleep(HEARTBEAT_S / 4)
                network.cable(1, "up")
                time.sleep(2 * HEARTBEAT_S)
            self.no_alarm(job)

    def test_a_short_cut_of_one_way_is_no_alarm(self):
        for way in ("to", "from"):
            with self.subTest(way=way), hosts.Hosts(2) as network:
                job = Job(self, network, "aabb")
                for _ in range(3):
                    network.cut(1, way)
                    time.sleep(HEARTBEAT_S / 4)
                    network.mend(1, way)
                    time.sleep(2 * HEARTBEAT_S)
                self.no_alarm(job)

    def test_a_long_computation_is_no_alarm(self):
        with hosts.Hosts(2) as network:
            job = Job(self, network, "aabb")
            job.tell("compute-1")
            time.sleep(1)
            job.tell("compute-2")
            time.sleep(2 * COMPUTE_S)
            self.no_alarm(job)

    def test_a_process_that_is_stopped_for_less(self):
        with hosts.Hosts(2) as network:
            job = Job(self, network, "aabb")
            for rank in range(4):
                job.send(rank, signal.SIGSTOP)
                time.sleep(HEARTBEAT_S / 2)
                job.send(rank, signal.SIGCONT)
                time.sleep(2 * HEARTBEAT_S)
            self.no_alarm(job)

    def test_a_process_that_is_stopped_for_longer(self):
        for stopped in (2, 0):
            for transport in ("shm,tcp", "tcp"):
                with self.subTest(stopped=stopped, transport=transport), hosts.Hosts(2) as network:
                    job = Job(self, network, "aab", TUTTI_TRANSPORT=transport)
                    survivors = [rank for rank in range(3) if rank != stopped]
                    since = time.monotonic()
                    job.send(stopped, signal.SIGSTOP)
                    self.go_on(job, survivors, since, [stopped])
                    job.send(stopped, signal.SIGCONT)
                    job.until(lambda: job.count("excluded", [stopped]) == 1)
                    self.assertRegex(job.texts()[stopped], r"excluded this one|is lost")
                    self.right(job, survivors)

    def test_a_process_that_goes_on_when_the_others_have_ended(self):
        for stopped in (2, 0):
            with self.subTest(stopped=stopped), hosts.Hosts(2) as network:
                job = Job(self, network, "aab")
                survivors = [rank for rank in range(3) if rank != stopped]
                since = time.monotonic()
                job.send(stopped, signal.SIGSTOP)
                self.go_on(job, survivors, since, [stopped])
                job.tell("stop")
                for rank in survivors:
                    self.assertEqual(job.ranks[rank].wait(60), 0, job.texts()[rank])
                job.untell("stop")  # it makes a further sum
                job.send(stopped, signal.SIGCONT)
                code, text = hosts.ends([job.ranks[stopped]])[0]
                # It must not make a communicator of its own.
                self.assertEqual(code, 3, text)
                self.assertNotIn("smaller", text)

    def test_starved_processes(self):
        with hosts.Hosts(2) as network:
            job = Job(self, network, "aabb")
            for process in job.ranks:
                os.setpriority(os.PRIO_PROCESS, process.pid, 10)
                for thread in os.listdir("/proc/%d/task" % process.pid):
                    os.setpriority(os.PRIO_PROCESS, int(thread), 10)
            busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count())]
            time.sleep(6 * HEARTBEAT_S)
            for process in busy:
                process.kill()
                process.wait()
            self.no_alarm(job)

    def test_without_a_heartbeat_the_deadline_ends_the_wait(self):
        with hosts.Hosts(2) as network:
            job = Job(self, network, "ab", TUTTI_HEARTBEAT_MS="0", TUTTI_TIMEOUT_MS="4000")
            since = time.monotonic()
            network.cable(1, "down")
            job.until(lambda: job.count("error", [0]) == 1)
            self.assertGreater(time.monotonic() - since, 3)
            self.assertIn("timed out", job.texts()[0])


if __name__ == "__main__":
    reason = hosts.why_not()
    if reason:
        print("skipped:", reason)
        sys.exit(77)
    unittest.main()
