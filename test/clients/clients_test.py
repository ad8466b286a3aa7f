"""Programs of other projects over tutti. Each runs twice with two ranks: over torch's gloo, and with TUTTI_AS_GLOO=1.

The programs do not name tutti, except those of an adapter, which also run over the library's own network. The losses of
every step must be the same in both runs. If the program chooses gloo by name, the second run cannot make a group of
torch's gloo. tutti logs each group that it makes. tools/setup-clients makes the environment.
"""
import re
import signal
import sys
import unittest

import runs
from runs import CLIENTS, OVER_TUTTI, PYTHON
from support import setUpModule  # noqa: F401


def too_long(*told):
    """A remark and no failure: how long a run takes depends on what else the machine does."""
    return f", more than the goal of {runs.GOAL_S} s" if max(run.seconds for run in told) > runs.GOAL_S else ""


class Client(unittest.TestCase):
    def over_gloo(self, client):
        """A run over torch's gloo. Once, two ranks of DeepSpeed stopped for good after 64 steps: it has a second try."""
        done = runs.run(client.command, **client.over["gloo"])
        if done.status == 0:
            return done
        print(f"{client.command[-1].name} over gloo: exit status {done.status}; once more", file=sys.stderr)
        return runs.run(client.command, **client.over["gloo"])

    def version_of(self, client):
        version = client.version()
        if version is None:
            self.skipTest(f"{client.package} is not in the environment of {PYTHON}; run tools/setup-clients")
        return version

    def same_training(self, name, groups=1, groups_beside_gloo=0):
        """Both runs of the client have the same losses to the last bit: a sum of two values has no order.

        groups: the least number of groups that the program makes, or has made for it. groups_beside_gloo: those of tutti
        that it makes in the run over gloo.
        """
        client = CLIENTS[name]
        version = self.version_of(client)
        gloo = self.over_gloo(client)
        self.assertEqual(gloo.status, 0, f"over gloo: {gloo}")
        self.assertEqual(gloo.groups(), groups_beside_gloo, f"over gloo: {gloo}")
        tutti = runs.run(client.command, **client.over["tutti"])
        self.assertEqual(tutti.status, 0, f"over tutti: {tutti}")
        self.assertGreaterEqual(tutti.groups(), groups, f"over tutti: {tutti}")
        losses = gloo.losses()
        self.assertGreaterEqual(len(losses), 20, gloo)
        self.assertLess(losses[-1], losses[0], "the program does not train")
        self.assertEqual(tutti.losses(), losses)
        print(f"{client.title} {version}: a step takes {tutti.step_ms():.2f} ms over tutti and {gloo.step_ms():.2f} ms over "
              f"{client.beside}; a run took {tutti.seconds:.0f} s and {gloo.seconds:.0f} s{too_long(gloo, tutti)}",
              file=sys.stderr)
        return tutti


class Proof(unittest.TestCase):
    def test_a_run_over_the_goal_is_told(self):
        quick, slow = (runs.Run(0, "", "", seconds) for seconds in (1.5, runs.GOAL_S + 1))
        self.assertEqual((too_long(quick, quick), too_long(quick, slow)), ("", ", more than the goal of 60 s"))

    def test_a_group_of_gloo_cannot_be_made_in_the_second_run(self):
        done = runs.run(CLIENTS["fsdp2"].command, **{**OVER_TUTTI, "TUTTI_AS_GLOO": "0"})
        self.assertNotEqual(done.status, 0, done)
        self.assertIn(runs.NO_INTERFACE, done.log)

    def test_a_run_that_is_too_long_ends_with_all_that_it_started(self):
        done = runs.run([PYTHON, "-c", "import subprocess, time\n"
                                       "subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
                                       "print('started', flush=True)\ntime.sleep(1000)"], timeout_s=5)
        self.assertEqual(done.status, "none after 5 s")
        self.assertGreaterEqual(done.seconds, 5)
        self.assertIn("started", done.out)
        self.assertEqual(runs.descendants(), set())


class DdpDcp(Client):
    """DistributedDataParallel and torch.distributed.checkpoint."""

    def test_training_goes_on_while_a_thread_and_a_process_save(self):
        # The world, the group of the thread, and the world of the processes that save.
        done = self.same_training("ddp", groups=3)
        for kind in ("THREAD", "PROCESS"):
            self.assertIn(f"SAVED {kind}", done.out)


class Fsdp2(Client):
    def test_a_mesh_that_names_no_backend(self):
        self.same_training("fsdp2")


class Lightning(Client):
    def test_the_trainer_with_two_processes(self):
        # The world, and a group for a barrier whose time-out is 10,000 days.
        self.same_training("lightning", groups=2)


class Accelerate(Client):
    def test_torchrun(self):
        self.same_training("accelerate")

    def test_its_own_launcher(self):
        self.same_training("accelerate-launch")


class Transformers(Client):
    def test_the_trainer(self):
        self.same_training("transformers")


class DeepSpeed(Client):
    def test_zero_of_stage_1(self):
        self.same_training("deepspeed")


class RayTrain(Client):
    def test_two_workers(self):
        self.same_training("ray")


class Adapters(Client):
    """The same programs as the table of docs/how-to/clients.md measures. test/python has the tests of the adapters."""

    def test_ray_collective(self):
        self.same_training("ray-collective")

    def test_torchft(self):
        self.same_training("torchft")

    def test_torchfts_own_tests(self):
        self.version_of(CLIENTS["torchft"])
        done = runs.run([PYTHON, runs.HERE / "torchft_suite.py"])
        self.assertEqual(done.status, 0, done)
        self.assertGreaterEqual(int(re.search(r"TORCHFT (\d+) run", done.out)[1]), 20, done)

    def test_lightgbm(self):
        # The ranks tell each other the ports of LightGBM's own sockets through a group of tutti.
        self.same_training("lightgbm", groups_beside_gloo=1)


if __name__ == "__main__":
    # Meson ends a test that takes too long with this signal; what the test started lies in other process groups.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    unittest.main()
