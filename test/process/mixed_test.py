"""One job of processes with this tree's library and with that of the kept baseline (tools/baseline), which is built here.

The ranks take turns: even ones load the older library, odd ones the new one. Then the other way round.
"""
import os
import pathlib
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(os.environ["TUTTI_SOURCE"])
LIBRARY = os.environ["TUTTI_LIBRARY_FOLDER"]
TRANSPORTS = ["shm", "tcp", *os.environ.get("TUTTI_FABRICS", "").split()]
STEPS = "300"
RANKS = 4
RANKS_OF_A_DEEP_TREE, FEW_STEPS = 11, "50"  # ranks 9 and 10 are below rank 1, and 1 to 8 below rank 0
HANG_GUARD_S = 300
# Arguments: a parity, the folder of its ranks' library, the folder of the other ranks' library, the program…
CHOOSE = """\
import os, sys
parity, there, elsewhere, *program = sys.argv[1:]
library = there if int(os.environ["TUTTI_RANK"]) % 2 == int(parity) else elsewhere
os.environ["LD_LIBRARY_PATH"] = library
os.execv(program[0], program)
"""


class Mixed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        made = subprocess.run([SOURCE / "tools" / "baseline"], capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL)
        if made.returncode != 0:
            raise RuntimeError(made.stderr)
        cls.older = pathlib.Path(made.stdout.strip()) / "lib" / "capi"

    def loaded(self, library):
        """The file that the program takes the library from."""
        said = subprocess.run(["ldd", os.environ["TUTTI_SOAK"]], capture_output=True, text=True, check=True,
                              env={**os.environ, "LD_LIBRARY_PATH": str(library)}).stdout
        return pathlib.Path(next(line.split()[2] for line in said.splitlines() if "libtutti.so" in line)).resolve()

    def test_the_two_libraries_are_what_the_ranks_load(self):
        self.assertEqual(self.loaded(self.older).parent, self.older.resolve())
        self.assertEqual(self.loaded(LIBRARY).parent, pathlib.Path(LIBRARY).resolve())

    def check_both(self, ranks, steps, *options):
        """Jobs whose even ranks are older, and jobs whose odd ranks are."""
        for parity in "01":
            with self.subTest(options=options, older=parity):
                done = subprocess.run(
                    [os.environ["TUTTI_RUN"], "-n", str(ranks), *options, sys.executable, "-c", CHOOSE, parity,
                     str(self.older), LIBRARY, os.environ["TUTTI_SOAK"], steps, "7"],
                    capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=HANG_GUARD_S)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn(steps + " steps right", done.stdout + done.stderr)

    def test_a_job_of_both(self):
        for transport in TRANSPORTS:
            self.check_both(RANKS, STEPS, "--transport", transport)

    def test_a_root_an_inner_rank_and_leaves_of_the_control_tree(self):
        self.check_both(RANKS_OF_A_DEEP_TREE, FEW_STEPS, "--transport", "tcp")

    def test_hosts_that_would_lie_far_apart_if_all_ranks_knew_of_that(self):
        self.check_both(RANKS, STEPS, "--transport", "shm,tcp", "--hosts-act", str(RANKS), "--env",
                        "TUTTI_ROUND_TRIP_MS=20")


if __name__ == "__main__":
    unittest.main(verbosity=2)
