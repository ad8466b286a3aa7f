"""Runs the programs in Python of the documents with two ranks, with the package that was installed for the tests.

Programs of another project's library need the environment of tools/setup-clients, so they are tests of their own.
"""
import pathlib
import sys
import tempfile
import unittest

from blocks import CLIENTS, OWN_TESTS, SOURCE, blocks, blocks_of, imported, pages

sys.path.insert(0, str(SOURCE / "test" / "clients"))
import runs  # noqa: E402
from runs import PYTHON  # noqa: E402
from support import need_module, setUpModule  # noqa: E402, F401

TIMEOUT_S = 300
# PyPI has no torchcomms: its program runs with the stand-in.
STAND_IN = str(runs.HERE / "stand_in")
# Torch's gloo aborts one process in five at the end of the interpreter, after its program (pytorch/pytorch#179291).
END_BEFORE_GLOO = "\nimport os\nimport sys\nsys.stdout.flush()\nos._exit(0)\n"
MPIRUN = ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", 2)
# The program whose name commands of the documents have.
TRAIN = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
sums = torch.ones(1000)
dist.all_reduce(sums)
print(f"sum {sums[0]:g}", flush=True)
dist.destroy_process_group()
"""


def programs():
    """(block, text) of each program: a block of Python without a mark, and the blocks that continue it."""
    for page, text in pages().items():
        found = []
        for block in blocks_of(page, text):
            if block.language == "python" and not block.mark:
                found.append([block, block.text])
            elif block.language == "python" and block.mark == "continued":
                found[-1][1] += block.text
        yield from found


def command(script, libraries):
    """The command that starts a program. Ray's starts its ranks itself, and each replica of torchft has a launcher."""
    if "ray" in libraries:
        return [PYTHON, script]
    if "torchft" in libraries:
        return [PYTHON, runs.HERE / "replicas.py", script]
    if "mpi4py" in libraries:
        return [*MPIRUN, PYTHON, script]
    return [PYTHON, "-m", "tutti.run", "-n", 2, "--timeout", TIMEOUT_S, script]


class Cases(unittest.TestCase):
    def runs(self, library=None):
        """Runs the programs that import the library, or with None those that import none of CLIENTS."""
        ran = 0
        for block, text in programs():
            libraries = imported(text)
            if library not in libraries if library else libraries & CLIENTS:
                continue
            with self.subTest(str(block)), tempfile.TemporaryDirectory() as folder:
                script = pathlib.Path(folder) / "program.py"
                over_gloo = "torch" in libraries and "tutti" not in libraries
                script.write_text(text + (END_BEFORE_GLOO if over_gloo else ""), encoding="utf-8")
                done = runs.run(command(script, libraries), TIMEOUT_S + 10, PYTHONPATH=STAND_IN)
                self.assertEqual(done.status, 0, f"{block}\n{done}")
                ran += 1
        self.assertGreater(ran, 0)


class Programs(Cases):
    def test_each_runs_with_two_ranks(self):
        self.runs()


class Scripts(unittest.TestCase):
    def test_the_switch_to_tutti_under_torchrun(self):
        script, = (block.text for block in blocks("sh")
                   if OWN_TESTS.get(block.place, ("", ""))[1] == self._testMethodName)
        install, *launch = script.splitlines()
        # tools/setup-python has done the same.
        self.assertRegex(install, r"^pip install \.( |$)")
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "train.py").write_text(TRAIN, encoding="utf-8")
            done = runs.run(["sh", "-e", "-c", f"cd {folder}\n" + "\n".join(launch)], TIMEOUT_S)
        self.assertEqual(done.status, 0, done)
        self.assertEqual(done.out.count("sum 2"), 2, done)
        self.assertIn("tutti answers to the name gloo", done.out + done.log)


class Clients(Cases):
    def check(self, library):
        need_module(library, library)
        self.runs(library)

    def test_lightgbm(self):
        self.check("lightgbm")

    def test_ray(self):
        self.check("ray")

    def test_torchft(self):
        self.check("torchft")

    def test_each_library_has_a_test(self):
        self.assertEqual({name.removeprefix("test_") for name in dir(self) if name.startswith("test_")} & CLIENTS, CLIENTS)


if __name__ == "__main__":
    unittest.main()
