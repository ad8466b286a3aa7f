"""Processes that meet by handles, without a store: ranks, losses, newcomers, and what they leave behind."""
import contextlib
import os
import secrets
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.environ["TUTTI_HANDLES"]
PATIENCE_MS = 60_000
SOON_S = 20  # on busy machines, and well before PATIENCE_MS
TIMES = 50


class Process:
    def __init__(self, **settings):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}
        self.process = subprocess.Popen([PROGRAM], env={**clean, **settings}, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.handle = self.ask("handle").removeprefix("ok ").strip()

    def begin(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def end(self):
        return self.process.stdout.readline().strip()

    def ask(self, command):
        self.begin(command)
        return self.end()

    def begin_meeting(self, uuid, handles, timeout_ms=PATIENCE_MS):
        self.begin(f"meet {uuid} {timeout_ms} {' '.join(handles)}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.kill()
        self.process.stdin.close()
        self.process.stdout.close()


def ask_all(processes, command):
    for process in processes:
        process.begin(command)
    return [process.end() for process in processes]


def holdings(answer):
    """The descriptors and threads of a process together."""
    word, descriptors, threads = answer.split()
    assert word == "ok", answer
    return int(descriptors) + int(threads)


class Handles(unittest.TestCase):
    def setUp(self):
        self.uuids = 0
        self.settings = {"TUTTI_SECRET": secrets.token_hex(16), "TUTTI_IFACE": "127.0.0.1"}
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)

    def start(self, count, **settings):
        return [self.stack.enter_context(contextlib.closing(Process(**{**self.settings, **settings})))
                for _ in range(count)]

    def meet(self, processes, members=None, timeout_ms=PATIENCE_MS):
        """The answers of the processes, each of which is told to meet the members."""
        self.uuids += 1
        handles = [member.handle for member in members or processes]
        for process in processes:
            process.begin_meeting(f"uuid-{self.uuids}", handles, timeout_ms)
        return [process.end() for process in processes]

    def assert_met(self, processes):
        size = len(processes)
        self.assertEqual(self.meet(processes), [f"ok {rank} {size}" for rank in range(size)])
        self.assertEqual(ask_all(processes, "sum"), [f"ok {size}"] * size)

    def assert_failed(self, answers, status, *parts):
        for answer in answers:
            self.assertTrue(answer.startswith(f"failed {status} "), answer)
            for part in parts:
                self.assertIn(part, answer)

    def test_survivors_and_newcomers_meet_again(self):
        processes = self.start(4)
        self.assert_met(processes)
        for lost in (2, 0):  # the first process, too, whose store the others met in
            processes.pop(lost).kill()
            self.assert_failed(ask_all(processes, "sum"), "peer lost")
            self.assert_met(processes)
        processes = self.start(2) + processes
        self.assert_met(processes)
        self.assert_met(processes[::-1])

    def test_works_without_a_secret(self):
        self.settings = {}
        self.assert_met(self.start(3))

    def test_the_communicator_outlives_the_first_process(self):
        processes = self.start(3, TUTTI_TRANSPORT="tcp")
        self.assertEqual(self.meet(processes), ["ok 0 3", "ok 1 3", "ok 2 3"])
        processes[0].kill()
        # No operation has opened a channel yet.
        self.assert_failed(ask_all(processes[1:], "sum"), "peer lost 0", "rank 0")

    def test_a_dead_process_is_named_at_once(self):
        processes = self.start(4)
        for dead in (0, 2):
            killed = processes[dead]
            killed.kill()
            living = [process for process in processes if process is not killed]
            began = time.monotonic()
            self.assert_failed(self.meet(living, processes), f"peer lost {dead}",
                               f"the process of handle {dead} (rank {dead}) has ended", "127.0.0.1:")
            self.assertLess(time.monotonic() - began, SOON_S)
            self.assert_met(living)
            processes[dead] = self.start(1)[0]

    def test_a_process_that_dies_while_the_others_wait_is_named(self):
        processes = self.start(3)
        handles = [process.handle for process in processes]
        for dead in (1, 0):
            living = [process for process in processes[:2] if process is not processes[dead]]
            began = time.monotonic()
            for process in processes[:2]:  # the third does not come
                process.begin_meeting(f"waiting-{dead}", handles)
            time.sleep(1)
            processes[dead].kill()
            self.assert_failed([process.end() for process in living], f"peer lost {dead}")
            self.assertLess(time.monotonic() - began, SOON_S)
            if dead == 1:
                processes[1] = self.start(1)[0]
                handles[1] = processes[1].handle

    def test_unlike_processes_are_told(self):
        one = self.start(1)[0]
        for other, status, said in ((self.start(1, TUTTI_SECRET=secrets.token_hex(16))[0], "authentication",
                                     "handle 1 of 2: its process has another secret"),
                                    (self.start(1, TUTTI_JOB="another")[0], "invalid argument",
                                     "handle 1 of 2: it is of job 'another', but this process is in job 'default'")):
            self.assert_failed(self.meet([one], [one, other]), status, said)

    def test_an_abort_ends_only_the_older_communicator(self):
        processes = self.start(3)
        self.assert_met(processes)
        processes[0].ask("abort")
        self.assert_failed(ask_all(processes, "sum"), "aborted")
        self.assert_met(processes)

    def test_nothing_is_left_behind(self):
        with tempfile.TemporaryDirectory() as folder:
            processes = self.start(3, TMPDIR=folder, XDG_RUNTIME_DIR=folder)
            for _ in range(3):
                self.assert_met(processes)
            ask_all(processes, "leave")
            before = [holdings(answer) for answer in ask_all(processes, "holds")]
            for _ in range(TIMES):
                processes.append(processes.pop(0))
                before.append(before.pop(0))
                self.assert_met(processes)
            ask_all(processes, "leave")
            until = time.monotonic() + SOON_S
            # The servers see the end of their clients' connections a moment later, so the first count may have some, too.
            for process, at_first in zip(processes, before):
                while (after := holdings(process.ask("holds"))) > at_first and time.monotonic() < until:
                    time.sleep(0.05)
                self.assertLessEqual(after, at_first)
            self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
