"""tutti.torchcomms, with torchcomms itself if the environment has it, else with a stand-in for its compiled module."""
import sys
import unittest

import runs
from runs import PYTHON
from support import run, setUpModule  # noqa: F401

STAND_IN = str(runs.HERE / "stand_in")


class Cases(unittest.TestCase):
    def every_call(self, **env):
        done = runs.run(runs.torchrun("torchcomms_calls.py", ranks=3), **env)
        self.assertEqual(done.status, 0, done)
        for rank in range(3):
            self.assertIn(f"TORCHCOMMS {rank} ", done.out)
        return done


class StandIn(Cases):
    def test_every_call(self):
        self.assertIn(" stand-in", self.every_call(PYTHONPATH=STAND_IN).out)

    def refused(self, *lines, **env):
        script = "\n".join(["import torch, torchcomms", *lines, "torchcomms.new_comm('tutti', torch.device('cpu'), 'c')"])
        done = run(PYTHON, "-c", script, PYTHONPATH=STAND_IN, **env)
        return done.stderr.splitlines()[-1]

    def test_a_process_without_a_launcher_is_told_what_it_lacks(self):
        self.assertRegex(self.refused(RANK="", WORLD_SIZE=""), r"^RuntimeError: .*TORCHCOMM_RANK.*What to do: ")
        self.assertRegex(self.refused(TORCHCOMM_RANK="0", TORCHCOMM_SIZE="2", MASTER_ADDR=""),
                         r"^RuntimeError: .*rank 0 has no store.*MASTER_ADDR.*What to do: ")

    def test_the_import_registers_once(self):
        done = run(PYTHON, "-c", "import tutti.torchcomms as t; t.register(); print(t.NAME)", PYTHONPATH=STAND_IN)
        self.assertEqual(done.stdout, "tutti\n", done.stderr)


class WithoutTorchcomms(unittest.TestCase):
    def test_the_import_says_what_it_lacks(self):
        done = run(PYTHON, "-c", "import sys; sys.modules['torchcomms'] = None; import tutti.torchcomms")
        self.assertRegex(done.stderr.splitlines()[-1], r"^ImportError: tutti\.torchcomms needs torchcomms, .*What to do: ")


class Torchcomms(Cases):
    def test_every_call(self):
        done = run(PYTHON, "-c", "import torchcomms._comms", PYTHONPATH="")
        if done.returncode != 0:
            self.skipTest("torchcomms cannot be imported in the tests' environment: "
                          + done.stderr.strip().splitlines()[-1])
        print(self.every_call().out, file=sys.stderr)


if __name__ == "__main__":
    unittest.main()
