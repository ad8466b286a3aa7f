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
        """How many wrong ends spin finds, of all orders in which the threads may run."""
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

    def test_threads_that_sleep_on_one_doorbell_lose_no_wake_up(self):
        for defines in (["SLEEPERS=2"], ["SLEEPERS=1", "SERVICE"]):
            self.assertEqual(self.errors("sleep.pml", *defines), 0, defines)

    def test_a_round_that_is_counted_before_the_doorbell_is_drained_loses_one(self):
        for defines in (["SLEEPERS=2"], ["SLEEPERS=1", "SERVICE"]):
            self.assertGreater(self.errors("sleep.pml", "COUNT_FIRST", *defines), 0, defines)


if __name__ == "__main__":
    unittest.main(verbosity=2)
