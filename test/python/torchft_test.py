"""tutti.torch.ft, with torchft itself if the environment has it."""
import re
import signal
import subprocess
import sys
import unittest

import support
from support import HERE, PYTHON, environment, run, setUpModule  # noqa: F401


class WithoutTorchft(unittest.TestCase):
    def test_the_import_says_what_it_lacks(self):
        done = run(PYTHON, "-c", "import sys; sys.modules['torchft'] = None; import tutti.torch.ft")
        self.assertRegex(done.stderr.splitlines()[-1], r"^ImportError: tutti\.torch\.ft needs torchft, .*What to do: ")

    def test_a_group_tells_the_error_that_has_ended_it(self):
        done = run(PYTHON, HERE / "ranks" / "errored.py", CUDA_VISIBLE_DEVICES="")
        self.assertEqual((done.returncode, done.stdout), (0, "ERRORED ok\n"), done.stdout + done.stderr)


class Torchft(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        support.need_module("torchft.process_group", "torchft")
        done = run(PYTHON, "-m", "tutti.torch")  # compiles the backend, which takes longer than the ranks' deadlines
        assert done.returncode == 0, done.stderr

    def test_replicas_come_and_go(self):
        port = str(support.unused_port())
        ranks = [subprocess.Popen([PYTHON, str(HERE / "ranks" / "replicas.py"), str(rank), port], text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  env=environment(TORCHELASTIC_RUN_ID=f"replica-{rank}", CUDA_VISIBLE_DEVICES="",
                                                  TORCHELASTIC_RESTART_COUNT=str(rank))) for rank in range(3)]
        try:
            told = support.outputs(ranks)
        finally:
            for process in ranks:
                process.kill()
                process.wait()
        self.assertEqual([process.returncode for process in ranks], [0, 0, -signal.SIGKILL], "\n".join(told))
        for text in told[:2]:
            self.assertEqual(text.count("CASE "), 4, text)
            print(re.search("REPLICA .*", text)[0], file=sys.stderr)

    def test_a_manager_trains_on_after_a_replica_has_gone(self):
        done = run(PYTHON, HERE / "ranks" / "managers.py", CUDA_VISIBLE_DEVICES="")
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-5000:])
        self.assertIn("MANAGERS ok", done.stdout)


if __name__ == "__main__":
    unittest.main()
