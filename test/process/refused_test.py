"""Ranks to which the system refuses something: another way is found, or the error says what is missing."""
import os
import re
import subprocess
import unittest

RUN = os.environ["TUTTI_RUN"]
SOAK = os.environ["TUTTI_SOAK"]
REFUSE = os.environ["TUTTI_REFUSE"]
SANITIZED = os.environ["TUTTI_SANITIZED"] == "1"
STEPS = "20"
HANG_GUARD_S = 120


def run(*program, launcher=(), **env):
    return subprocess.run([*launcher, RUN, "-n", "3", *program], env={**os.environ, **env}, capture_output=True,
                          text=True, timeout=HANG_GUARD_S, stdin=subprocess.DEVNULL, check=False)


def limited(limit):
    return "sh", "-c", "ulimit " + limit + ' && exec "$@"', "sh"


class Refused(unittest.TestCase):
    def setUp(self):
        done = subprocess.run([REFUSE, "pidfd_open", "true"], capture_output=True, text=True, check=False)
        if done.returncode == 77:
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)

    def check_right(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(STEPS + " steps right", done.stdout)

    def check_told(self, done, *words):
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, done.stdout + done.stderr)

    def test_memory_without_a_file(self):
        done = run(REFUSE, "memfd_create", SOAK, STEPS, "1")
        self.check_right(done)
        self.assertEqual(done.stderr.count("unlinked files in /dev/shm"), 3, done.stderr)  # once on each rank

    def test_no_shared_memory_at_all(self):
        without = (REFUSE, "memfd_create", REFUSE, "O_TMPFILE")
        done = run(*without, SOAK, STEPS, "1")
        self.check_right(done)
        told = re.findall("the job does without shm: cannot make shared memory", done.stderr)
        self.assertEqual(len(told), 3, done.stderr)
        # One rank without is enough.
        of_one = 'if [ $TUTTI_RANK = 1 ]; then exec ' + " ".join(without) + ' "$@"; else exec "$@"; fi'
        done = run("sh", "-c", of_one, "sh", SOAK, STEPS, "1")
        self.check_right(done)
        self.assertEqual(done.stderr.count("rank 1: the job does without shm"), 1, done.stderr)
        self.check_told(run(*without, SOAK, STEPS, "1", TUTTI_TRANSPORT="shm"), "cannot make shared memory",
                        "memfd_create", "/dev/shm", "TUTTI_TRANSPORT=tcp")

    def test_descriptors_of_processes(self):
        self.check_right(run(SOAK, STEPS, "1", launcher=(REFUSE, "pidfd_open")))

    def test_descriptors_of_events(self):
        done = run(REFUSE, "eventfd2", SOAK, STEPS, "1")
        self.check_told(done, "cannot make an eventfd", "seccomp", "Operation not permitted")
        self.assertNotIn("descriptor -1", done.stderr)

    @unittest.skipIf(SANITIZED, "a sanitizer starts threads of its own")
    def test_threads(self):
        self.check_told(run(REFUSE, "clone3", SOAK, STEPS, "1"), "cannot start the service thread",
                        "ulimit -u", "pids.max")

    def test_large_files(self):
        self.check_right(run(*limited("-f 8000"), SOAK, STEPS, "1"))
        self.check_told(run(*limited("-f 1"), SOAK, STEPS, "1"), "ulimit -f", "TUTTI_TRANSPORT=tcp")

    @unittest.skipIf(SANITIZED, "sanitized frames are larger")
    def test_large_stacks(self):
        # That of tutti-run, too, which serves the store.
        self.check_right(run(SOAK, STEPS, "1", launcher=limited("-s 64")))


if __name__ == "__main__":
    unittest.main(verbosity=2)
