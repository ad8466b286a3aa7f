"""Rounded sums of two ranks have the bits that are written down here, whatever processors the ranks run on.

TUTTI_OTHER_BUILD, set by tools/check, is the build folder for another processor: then one job also has a rank of each.
"""
import os
import pathlib
import re
import subprocess
import unittest

RUN = os.environ["TUTTI_RUN"]
SUMS = os.environ["TUTTI_SUMS"]
OTHER = os.environ.get("TUTTI_OTHER_BUILD")
DIGEST = "32b52e203ad40d95"
HANG_GUARD_S = 60


class Sums(unittest.TestCase):
    def expect_digest(self, transport, *program):
        done = subprocess.run([RUN, "-n", "2", "--transport", transport, *program], capture_output=True, text=True,
                              check=False, stdin=subprocess.DEVNULL, timeout=HANG_GUARD_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(re.findall(r"digest (\w+)", done.stdout), [DIGEST, DIGEST], done.stdout)

    def test_sums(self):
        for transport in ("shm", "tcp"):
            with self.subTest(transport=transport):
                self.expect_digest(transport, SUMS)

    @unittest.skipUnless(OTHER, "TUTTI_OTHER_BUILD names no build folder for another processor")
    def test_a_job_on_two_kinds_of_processor(self):
        other = pathlib.Path(OTHER) / "test" / "process" / "sums"
        for transport in ("shm", "tcp"):
            with self.subTest(transport=transport):
                self.expect_digest(transport, "sh", "-c", 'if [ "$TUTTI_RANK" = 0 ]; then exec "$0"; else exec "$1"; fi',
                                   SUMS, str(other))


if __name__ == "__main__":
    unittest.main(verbosity=2)
