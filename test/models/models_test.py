"""Runs the model checker spin on protocols between threads that no test can drive into every order."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
CC = shlex.split(os.environ.get("TUTTI_CC", "cc"))
LIMIT_S = 100


@unittest.skipUnless(shutil.which("spin"), "the model checker spin is missing (Debian: spin)")
class Models(unittest.TestCase):
    def errors(self, model, *defines):
        """Returns how many errors spin finds in all interleavings of the threads."""
        with tempfile.TemporaryDirectory() as folder:
            def call(*command):
                done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S,
                                      stdin=subprocess.DEVNULL)
                output = done.stdout + done.stderr
                self.assertEqual(done.returncode, 0, output)
                return output

            call("spin", "-a", *(f"-D{d}" for d in defines), str(HERE / model))
            call(*CC, "-O1", "-w", "-DSAFETY", "-o", "pan", "pan.c")
            output = call("./pan", "-m100000")
            self.assertNotIn("max search depth too small", output)
            return int(re.search(r"errors: (\d+)", output)[1])

    # Threads of the program of one communicator, of two, and each beside the service thread.
    ONE = ("SLOTS=2", "MOVES=2")
    ONE_AFTER_ANOTHER = ("SLOTS=2", "MOVES=2", "ONE_FIRST")
    ONE_AND_SOCKET = ("SLOTS=2", "SOCKET", "ONE_FIRST")
    TWO = ("COMMS=2", "ROUNDS=2")
    TWO_AND_SOCKET = ("COMMS=2", "SOCKET")
    SERVICE = ("COMMS=2", "THREADS=1")
    SERVICE_AND_SOCKET = ("COMMS=2", "THREADS=1", "SOCKET")
    SERVICE_IN_ONE = ("SLOTS=2", "THREADS=1")

    def test_threads_of_one_communicator_lose_no_wake_up(self):
        self.assertEqual(self.errors("sleep.pml", *self.ONE), 0)
        self.assertEqual(self.errors("sleep.pml", *self.ONE_AFTER_ANOTHER), 0)
        self.assertEqual(self.errors("sleep.pml", *self.ONE_AND_SOCKET), 0)

    def test_threads_of_two_communicators_lose_no_wake_up(self):
        self.assertEqual(self.errors("sleep.pml", *self.TWO), 0)
        self.assertEqual(self.errors("sleep.pml", *self.TWO_AND_SOCKET), 0)

    def test_a_thread_beside_the_service_thread_loses_no_wake_up(self):
        self.assertEqual(self.errors("sleep.pml", *self.SERVICE), 0)
        self.assertEqual(self.errors("sleep.pml", *self.SERVICE_AND_SOCKET), 0)

    def test_a_thread_and_the_service_thread_at_one_communicator_lose_no_wake_up(self):
        self.assertEqual(self.errors("sleep.pml", *self.SERVICE_IN_ONE), 0)

    def test_every_part_of_the_protocol_is_needed(self):
        for left_out, threads in (("LOOK_FIRST", self.ONE), ("NO_LOOK", self.ONE), ("NOT_AGAIN", self.ONE),
                                  ("NO_WAKE_SLEEPERS", self.ONE_AFTER_ANOTHER), ("COUNT_LATE", self.ONE_AFTER_ANOTHER),
                                  ("NO_SINCE", self.ONE_AFTER_ANOTHER), ("NO_OWN", self.ONE_AND_SOCKET),
                                  ("NO_SINCE", self.TWO), ("COUNT_FIRST", self.TWO),
                                  ("NO_OWN", self.TWO_AND_SOCKET), ("LOOK_FIRST", self.SERVICE),
                                  ("COUNT_FIRST", self.SERVICE), ("NO_WAKE_SERVICE", self.SERVICE_AND_SOCKET),
                                  ("NO_WAKE_SLEEPERS", self.SERVICE_IN_ONE), ("COUNT_LATE", self.SERVICE_IN_ONE)):
            with self.subTest(left_out):
                self.assertGreater(self.errors("sleep.pml", left_out, *threads), 0, threads)


if __name__ == "__main__":
    unittest.main(verbosity=2)
