"""Runs the programs in Python of the documents with two ranks, with the package that was installed for the tests."""
import os
import pathlib
import sys
import tempfile
import unittest

from blocks import SOURCE, blocks_of, pages

sys.path.insert(0, str(SOURCE / "test" / "python"))
from support import PYTHON, run, setUpModule  # noqa: E402, F401


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


class Programs(unittest.TestCase):
    def test_each_runs_with_two_ranks(self):
        ran = 0
        for block, text in programs():
            with self.subTest(str(block)), tempfile.TemporaryDirectory() as folder:
                script = pathlib.Path(folder) / "program.py"
                script.write_text(text, encoding="utf-8")
                done = run(PYTHON, "-m", "tutti.run", "-n", 2, "--timeout", 300, script)
                self.assertEqual(done.returncode, 0, f"{block}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
                ran += 1
        self.assertGreater(ran, 0)


if __name__ == "__main__":
    os.chdir(tempfile.gettempdir())  # not where a program would find other modules
    unittest.main()
