"""The wheel: what it asks of a system, and whether it works where there is nothing but that."""
import contextlib
import io
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

import support
from support import PYTHON, run, setUpModule  # noqa: F401

sys.path.insert(0, str(support.HERE.parent.parent / "python"))
import manylinux  # noqa: E402

INSTALL_LIMIT_S = 10
SCRIPT = """
import numpy as np, os, tutti
comm = tutti.init()
got = comm.allreduce(np.arange(100_000.0))
assert (got == np.arange(100_000.0) * comm.size).all()
if comm.rank == 0:
    files = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
    print("MAPPED", *sorted(files))
comm.close()
"""


def wheel():
    found = list((pathlib.Path(PYTHON).parent.parent / "wheels").glob("tutti-*.whl"))
    assert len(found) == 1, f"tools/setup-python left {found}"
    return found[0]


class Tag(unittest.TestCase):
    def test_it_names_a_glibc_that_this_system_has(self):
        tag = re.search(r"-manylinux_2_(\d+)_(\w+)\.whl$", wheel().name)
        self.assertTrue(tag, wheel().name)
        here = tuple(int(part) for part in os.confstr("CS_GNU_LIBC_VERSION").split()[1].split("."))
        self.assertLessEqual((2, int(tag.group(1))), here)
        self.assertEqual(tag.group(2), os.uname().machine)

    def test_auditwheel_agrees(self):
        done = run(PYTHON, "-m", "auditwheel", "show", wheel())
        self.assertEqual(done.returncode, 0, done.stderr)
        # It folds its text, and names what it finds before what the file's name says.
        words = " ".join(done.stdout.split())
        found = re.search(r'constrains the platform tag to "manylinux_2_(\d+)_|consistent with the following platform '
                          r'tag: "manylinux_2_(\d+)_', words)
        self.assertTrue(found, done.stdout)
        ours = int(re.search(r"manylinux_2_(\d+)", wheel().name).group(1))
        self.assertLessEqual(max(int(number) for number in found.groups() if number), ours, done.stdout)

    def test_the_wheel_is_whole(self):
        with zipfile.ZipFile(wheel()) as archive:
            self.assertIsNone(archive.testzip())
            names = set(archive.namelist())
            record = next(name for name in names if name.endswith(".dist-info/RECORD"))
            lines = archive.read(record).decode().splitlines()
            self.assertEqual({line.split(",")[0] for line in lines}, names)
            for line in lines:
                name, digest, _ = line.rsplit(",", 2)
                if digest:
                    self.assertEqual(line, manylinux._record_line(name, archive.read(name)))

    def test_versions_of_symbols_name_a_glibc(self):
        for version, glibc in (("GLIBC_2.2.5", 17), ("GLIBC_2.34", 34), ("GLIBCXX_3.4.29", 34), ("GLIBCXX_3.4.30", 35),
                               ("CXXABI_1.3.13", 34), ("CXXABI_TM_1", 17), ("GCC_3.0", 17), ("ZLIB_1.2.9", 27),
                               ("GLIBC_ABI_DT_RELR", 36)):
            self.assertEqual(manylinux.glibc_for(version), glibc, version)
        for version in ("GLIBCXX_3.4.99", "GLIBC_ABI_SOMETHING_NEW", "GLIBC_PRIVATE"):
            with self.assertRaisesRegex(manylinux.NotPortable, version):
                manylinux.glibc_for(version)

    def test_a_library_that_is_not_everywhere_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "x-1-cp311-cp311-linux_x86_64.whl"
            with zipfile.ZipFile(wheel()) as old, zipfile.ZipFile(path, "w") as new:
                for name in old.namelist():
                    if "libfmt" not in name:
                        new.writestr(name, old.read(name))
            with zipfile.ZipFile(path) as lacking, self.assertRaisesRegex(manylinux.NotPortable, "needs libfmt"):
                manylinux.glibc_of(lacking)
            told = io.StringIO()
            with contextlib.redirect_stderr(told):
                self.assertEqual(manylinux.retag(path), path)
            self.assertIn("needs libfmt", told.getvalue())


class Bare(unittest.TestCase):
    """An environment of its own without numpy's neighbours, a PATH where nothing is, no variables."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = pathlib.Path(cls.folder.name) / "env"
        subprocess.run([PYTHON, "-m", "venv", "--without-pip", str(cls.root)], check=True)
        cls.python = cls.root / "bin" / "python"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = run(PYTHON, "-m", "pip", "--python", cls.python, "install", "--no-index", "--no-deps", "--quiet",
                   wheel())
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0, done.stderr
        cls.cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        # numpy is the one thing that the package depends on; there is no network here to fetch it from.
        script = "import numpy, pathlib; print(pathlib.Path(numpy.__file__).parent.parent)"
        there = pathlib.Path(run(PYTHON, "-c", script).stdout.strip())
        own = next((cls.root / "lib").glob("python*")) / "site-packages"
        for name in ("numpy", "numpy.libs"):
            if (there / name).exists():
                (own / name).symlink_to(there / name)

    def bare(self, *command):
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                              timeout=support.TIMEOUT_S, stdin=subprocess.DEVNULL, cwd=self.folder.name,
                              env={"PATH": str(self.root / "nothing"), "HOME": self.folder.name})

    def test_it_is_installed_in_seconds(self):
        self.assertLess(self.cpu_s, INSTALL_LIMIT_S)

    def test_two_ranks_add_with_nothing_else_installed(self):
        script = pathlib.Path(self.folder.name) / "ranks.py"
        script.write_text(SCRIPT)
        done = self.bare(self.python, "-m", "tutti.run", "-n", 2, "--no-prefix", "--timeout", 120, script)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        mapped = next(line for line in done.stdout.splitlines() if line.startswith("MAPPED ")).split()[1:]
        ours = [path for path in mapped if "/tutti/" in path]
        self.assertTrue(any("libtutti.so" in path for path in ours), mapped)
        for path in mapped:
            name = pathlib.Path(path).name
            if path in ours or "/numpy" in path or "lib-dynload" in path or name.startswith("libpython"):
                continue
            # Not libcrypto: python's own hashlib loads it. That tutti's binaries do not, package_test.py sees.
            self.assertNotRegex(name, r"^lib(tutti|fmt|spdlog|hwy|ucp|uct|ucs|fabric|hwloc)\b", path)

    def test_the_backend_for_torch_says_what_it_lacks(self):
        done = self.bare(self.python, "-c", "import tutti.torch")
        self.assertIn("needs PyTorch", done.stderr)

    def test_the_programs_are_where_they_are_looked_for(self):
        done = self.bare(self.root / "bin" / "tutti-bench", "allreduce", "--ranks", 2, "-b", 8, "-e", 8, "-n", 3)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIsNone(shutil.which("tutti-bench", path=str(self.root / "nothing")))


if __name__ == "__main__":
    unittest.main()
