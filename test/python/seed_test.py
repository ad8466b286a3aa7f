"""A program that seed.py forks, beside the same program in a fresh interpreter. Run by seed.py itself."""
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

import support
from support import FORKED, HERE, PYTHON, environment, run, run_ranks, setUpModule  # noqa: F401


def both(*arguments, **how):
    """Exit status, output, and last line of errors of the forked and of the fresh program."""
    for words in (FORKED, [PYTHON]):
        done = subprocess.run([*words, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                              **{"env": environment(), "input": "", **how})
        yield done.returncode, done.stdout, done.stderr.splitlines()[-1:]


def is_forked(**env):
    return run(*FORKED, "-c", "import sys; print('torch' in sys.modules)", **env).stdout.strip() == "True"


def gone(condition):
    """Whether the condition holds within a minute."""
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def is_alive(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").split()[2] != "Z"
    return False


class Forked(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not is_forked():
            raise unittest.SkipTest("seed.py does not run this program")

    def check_same(self, *arguments, **how):
        forked, fresh = both(*arguments, **how)
        self.assertEqual(forked, fresh)
        return fresh

    def test_it_ends_as_a_fresh_one(self):
        codes = {"pass": 0, "raise SystemExit(3)": 3, "import os; os._exit(4)": 4, "import sys; sys.exit('why')": 1,
                 "raise ValueError('why')": 1, "if": 1, "import os; os.abort()": -signal.SIGABRT,
                 "import os; os.kill(os.getpid(), 9)": -signal.SIGKILL, "raise KeyboardInterrupt": -signal.SIGINT,
                 "import atexit; atexit.register(print, 'late'); print('early')": 0,
                 "class Last:\n    def __del__(self): print('deleted')\nlast = Last()": 0,
                 "import threading; threading.Timer(.1, print, ['thread']).start()": 0}
        for script, code in codes.items():
            with self.subTest(script):
                self.assertEqual(self.check_same("-c", script)[0], code)

    def test_it_has_what_its_caller_has(self):
        show = ("import os, sys\nos.umask(mask := os.umask(0))\nimport __main__\n"
                "print(sys.argv, sys.path[0], os.getcwd(), oct(mask), sys.stdin.read(), os.environ.get('RANK'),\n"
                "      __name__, getattr(__main__, '__file__', None), 'seed' in globals(),\n"
                "      len(os.listdir('/proc/self/fd')))")
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "shown.py").write_text(show, encoding="utf-8")
            for arguments in (["-c", show], ["-m", "shown"], [pathlib.Path(folder) / "shown.py"]):
                with self.subTest(arguments[0]):
                    told = self.check_same(*arguments, "a", "b c", cwd=folder, input="given", umask=0o027,
                                           env=environment(RANK="7"))[1]
                    path = "" if arguments[0] == "-c" else folder
                    self.assertIn(f"'a', 'b c'] {path} {folder} 0o27 given 7 __main__", told)

    def test_variables_that_torch_has_read_need_a_fresh_one(self):
        for name in ("OMP_NUM_THREADS", "TORCH_CPP_LOG_LEVEL", "TORCH_DISTRIBUTED_DEBUG", "LD_LIBRARY_PATH",
                     "TUTTI_AS_GLOO", "PYTHONHASHSEED"):
            self.assertFalse(is_forked(**{name: "2"}), name)
        self.assertTrue(is_forked(RANK="2", TUTTI_TRANSPORT="tcp", TORCH_FR_DUMP_TEMP_FILE="x"))

    def test_tutti_and_random_numbers_are_its_own(self):
        script = "import sys, random, numpy; print('tutti' in sys.modules, random.random(), numpy.random.random())"
        first, second = (run(*FORKED, "-c", script).stdout.split() for _ in range(2))
        self.assertEqual([first[0], second[0]], ["False", "False"])
        self.assertEqual(len({*first[1:], *second[1:]}), 4)

    def test_it_is_killed_with_its_children_if_its_caller_is(self):
        script = ("import os, subprocess, time\n"
                  "print(os.getpid(), subprocess.Popen(['sleep', '600']).pid, flush=True)\ntime.sleep(600)")
        with subprocess.Popen([*FORKED, "-c", script], env=environment(), stdout=subprocess.PIPE, text=True) as caller:
            pids = caller.stdout.readline().split()
            self.assertEqual([is_alive(pid) for pid in pids], [True, True])
            caller.kill()
            self.assertTrue(gone(lambda: not any(map(is_alive, pids))), pids)

    def test_the_seed_ends_when_its_starter_is_killed(self):
        script = "import os, time; print(os.environ['TUTTI_TEST_SEED'], flush=True); time.sleep(600)"
        command = [sys.executable, str(HERE / "seed.py"), "-c", script]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as starter:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.connect(starter.stdout.readline().strip())
                os.killpg(starter.pid, signal.SIGKILL)
                client.settimeout(60)
                with contextlib.suppress(ConnectionResetError):
                    self.assertEqual(client.recv(1), b"")


class Ranks(unittest.TestCase):
    """A failure of one rank is the job's, and ends the others."""

    def job(self, script, timeout_s=60, grace_s=20):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file, unittest.mock.patch.object(support, "GRACE_S", grace_s):
            file.write("import os, sys, time\nrank = int(os.environ['RANK'])\n" + script +
                       "\nsys.stderr.flush()\nos._exit(0)\n")  # the interpreter's end takes longer
            file.flush()
            begin = time.monotonic()
            done = run_ranks(3, file.name, timeout_s)
            self.assertLess(time.monotonic() - begin, 60)
            return done.returncode, done.stderr.strip().splitlines()

    def test_that_all_end_well(self):
        self.assertEqual(self.job("if rank == 1: print(rank, file=sys.stderr)"), (0, ["1"]))

    def test_that_one_exits(self):
        self.assertEqual(self.job("if rank == 1: sys.exit(3)\ntime.sleep(600)", grace_s=3), (3, [
            "rank 0 of 3 was killed, since it had not ended", "rank 1 of 3 ended with 3",
            "rank 2 of 3 was killed, since it had not ended"]))

    def test_that_one_crashes(self):
        self.assertEqual(self.job("if rank == 2: os.kill(os.getpid(), 11)"),
                         (-signal.SIGSEGV, ["rank 2 of 3 ended with -11"]))

    def test_that_one_hangs(self):
        self.assertEqual(self.job("time.sleep(600 if rank == 0 else 0)", timeout_s=6),
                         (-signal.SIGKILL, ["rank 0 of 3 was killed, since it had not ended"]))

    def test_that_the_others_may_print_their_errors(self):
        told = self.job("time.sleep(0 if rank == 1 else .3)\nprint('error', file=sys.stderr)\nsys.exit(1)")[1]
        self.assertEqual(told, ["error"] * 3 + [f"rank {rank} of 3 ended with 1" for rank in range(3)])


if __name__ == "__main__":
    unittest.main()
