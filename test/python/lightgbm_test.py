"""tutti.lightgbm: over a stand-in for LightGBM's library, and with LightGBM itself if the environment has it."""
import os
import re
import signal
import socket
import subprocess
import unittest

import support
from support import HERE, PYTHON, environment, run, setUpModule  # noqa: F401


def free_ports(count):
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [str(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


class StandIn(unittest.TestCase):
    def check(self, ranks, **env):
        done = run(PYTHON, "-m", "tutti.run", "-n", ranks, "--no-prefix", "--timeout", 120,
                   HERE / "ranks" / "network.py", TUTTI_ACTED_LIGHTGBM=os.environ["TUTTI_ACTED_LIGHTGBM"], **env)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-4000:])
        self.assertEqual(done.stdout.count("CASE "), 18, done.stdout)

    def test_one_rank(self):
        self.check(1)

    def test_two_ranks(self):
        self.check(2)

    def test_three_ranks(self):
        self.check(3)

    def test_three_ranks_over_tcp(self):
        self.check(3, TUTTI_TRANSPORT="tcp")


class LightGBM(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        support.need_module("lightgbm", "LightGBM")

    def ranks(self, *arguments):
        done = run(PYTHON, "-m", "tutti.run", "-n", 2, "--no-prefix", "--timeout", 120, HERE / "ranks" / "boosting.py",
                   *arguments)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-4000:])
        return done.stdout

    def outcomes(self, told):
        """{(training, rank): (loss, hash of the trees)}"""
        losses = {(name, rank): float(loss) for name, rank, loss in re.findall(r"LOSS (\w+) (\d) (\S+)", told)}
        models = {(name, rank): trees for name, rank, trees in re.findall(r"MODEL (\w+) (\d) (\w+) 12", told)}
        self.assertEqual(len(losses), 6, told)
        return {key: (loss, models[key]) for key, loss in losses.items()}

    def test_it_trains_as_over_its_own_sockets(self):
        ours = self.outcomes(self.ranks("tutti"))
        theirs = self.outcomes(self.ranks("sockets", *free_ports(6)))
        for (name, rank), (loss, trees) in ours.items():
            with self.subTest(name, rank=rank):
                self.assertAlmostEqual(loss, theirs[name, rank][0], delta=1e-6)
                if name == "voting":  # LightGBM's trees then count the rows of the rank itself
                    self.assertEqual(loss, ours[name, "0"][0], "the ranks have different models")
                else:
                    self.assertEqual(trees, ours[name, "0"][1], "the ranks have different models")
                    self.assertLess(loss, 0.45, "nothing was learnt")

    def test_a_lost_rank_is_named(self):
        store = "tcp://127.0.0.1:" + free_ports(1)[0]
        ranks = [subprocess.Popen([PYTHON, str(HERE / "ranks" / "boosting.py"), "kill"], text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  env=environment(TUTTI_RANK=str(rank), TUTTI_SIZE="2", TUTTI_STORE=store))
                 for rank in range(2)]
        try:
            told = support.outputs(ranks)
        finally:
            for process in ranks:
                process.kill()
                process.wait()
        self.assertEqual([process.returncode for process in ranks], [0, -signal.SIGKILL], "\n".join(told))
        error = re.search(r"ERROR (tutti: [\w-]+ for LightGBM: .*)", told[0])
        self.assertTrue(error, told[0])
        self.assertIn("rank 1", error[1])
        self.assertIn("What to do: ", error[1])
        self.assertIn("ALONE 12", told[0])

    def test_a_thread_that_trains_alone_is_an_error(self):
        told = self.ranks("thread")
        self.assertEqual((told.count("TRAINED"), told.count("ERROR ")), (2, 2), told)
        for rank in range(2):
            self.assertRegex(told, rf"ERROR .*rank {rank}: LightGBM used no collective of this thread .* What to do: ")


if __name__ == "__main__":
    unittest.main()
