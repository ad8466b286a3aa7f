"""The wheels of tools/wheels in build/wheels: their tags, and jobs where there is no compiler.

With --make (the suite python-long), tools/wheels and debootstrap make what is missing, and Debian's Python for aarch64
is fetched. Otherwise a test without a wheel of these sources, without a bare root in build/bare-root, or without a
Python in build/wheels/aarch64-python, is skipped.
"""
import contextlib
import json
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

import support
from support import HERE, PYTHON, run

TREE = HERE.parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(TREE / "python"), str(TREE / "tools")]
import manylinux  # noqa: E402
from portable import backends, checks, debian, toolchain  # noqa: E402

MACHINE, FOREIGN = os.uname().machine, "aarch64"
QEMU = f"qemu-{FOREIGN}-static"
# Debian's Python for the other processor, and the libraries that it, numpy and the wheel need.
FOREIGN_PACKAGES = ("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libbz2-1.0", "libc6",
                    "libcrypt1", "libexpat1", "libffi8", "libgcc-s1", "liblzma5", "libssl3", "libstdc++6", "libuuid1",
                    "zlib1g")
WHEELS, ROOT = TREE / "build" / "wheels", TREE / "build" / "bare-root"
MAKE = "--make" in sys.argv
FLOOR = 28
MAKE_TIMEOUT_S, JOB_TIMEOUT_S = 3000, 300
BENCH = "allreduce -b 8 -e 64K -f 16 -n 3 -w 1 --check".split()
SUITE, ROOT_PACKAGES, ROOT_PYTHON = "bookworm", "python3,python3-venv", "3.11"
SCRIPT = """
import numpy as np, sys, tutti
comm = tutti.init()
assert (comm.allreduce(np.arange(1000.0)) == np.arange(1000.0) * comm.size).all()
print("RANK", comm.rank, comm.size, tutti._tutti.__file__)
comm.close()
"""


def torch_version():
    """The first three numbers of the environment's torch."""
    told = run(PYTHON, "-c", "import torch; print(torch.__version__)").stdout
    return re.match(r"\d+\.\d+\.\d+", told)[0]


def pyenv(version):
    root = pathlib.Path(os.environ.get("PYENV_ROOT") or pathlib.Path.home() / ".pyenv") / "versions"
    return next(iter(sorted(root.glob(f"{version}.*/bin/python3"))), None)


def setUpModule():  # noqa: N802
    support.setUpModule()
    make_wheels(MACHINE)


def make_wheels(machine):
    """Runs tools/wheels if it must; skips without wheels of these sources for the processor."""
    script = runpy.run_path(str(TREE / "tools" / "wheels"))
    digest = script["source_digest"]()
    sources = WHEELS / "sources"
    if sources.is_file() and sources.read_text() == digest and wheels(machine=machine):
        return
    if not MAKE:
        raise unittest.SkipTest(f"build/wheels has no wheel of these sources for {machine}; tools/wheels --arch {machine} "
                                "makes one")
    pythons = [f"{sys.version_info[0]}.{sys.version_info[1]}"] + (["3.12"] if pyenv("3.12") else [])
    done = subprocess.run([TREE / "tools" / "wheels", "--arch", machine, "--python", *pythons, "--torch",
                           torch_version()], capture_output=True, text=True, check=False, timeout=MAKE_TIMEOUT_S)
    if done.returncode == script["LACKING"]:
        raise unittest.SkipTest(done.stderr.strip())
    if done.returncode == script["NATIVE_ONLY"]:
        raise unittest.SkipTest(next(line.strip() for line in done.stdout.splitlines() if "cannot build" in line))
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)


def wheels(tag="*", machine="*"):
    """Without those for systems like this one alone, which tools/wheels makes where Debian's packages cannot be had."""
    found = ((path, re.search(r"-manylinux_2_(\d+)_", path.name)) for path in WHEELS.glob(f"tutti-*-{tag}-*_{machine}.whl"))
    return sorted(path for path, floor in found if floor and int(floor[1]) <= FLOOR)


def wheel(tag, machine=MACHINE):
    found = wheels(tag, machine)
    if not found:
        raise unittest.SkipTest(f"build/wheels has no wheel for {tag} on {machine}; tools/wheels makes one")
    return found[0]


def machines_wheel():
    version = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    return wheel(f"{version}-{version}" if sys.version_info < (3, 12) else "cp312-abi3")


class Foreign(unittest.TestCase):
    """The wheels for aarch64 on another processor. qemu runs Debian's Python for aarch64, and that imports the wheel."""

    @classmethod
    def setUpClass(cls):
        if MACHINE == FOREIGN:
            raise unittest.SkipTest(f"this machine is {FOREIGN} itself: the other tests run its wheels")
        make_wheels(FOREIGN)
        cls.wheel = wheel("cp311-cp311", FOREIGN)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    def install(self):
        """numpy and the wheel, if pip finds that the wheel's tag fits; returns the command of the Python with both."""
        if shutil.which(QEMU) is None:
            self.skipTest(f"this machine has no {QEMU} (tools/setup --cross)")
        root, site = foreign_python(self), self.folder / "site"
        if not site.is_dir():
            pip = [PYTHON, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "--target"]
            foreign = ["--platform", f"manylinux_2_{FLOOR}_{FOREIGN}", "--python-version", "3.11", "--implementation",
                       "cp", "--abi", "cp311"]
            done = run(*pip, self.folder / "numpy", *foreign, "numpy")
            if done.returncode != 0:
                self.skipTest(f"numpy for {FOREIGN} cannot be fetched: {done.stderr.strip()[-200:]}")
            done = run(*pip, site, *foreign, "--no-index", self.wheel)
            self.assertEqual(done.returncode, 0, done.stderr)
        return [QEMU, "-L", root, "-E", f"PYTHONPATH={site}:{self.folder / 'numpy'}", root / "usr/bin/python3.11"]

    def check_ranks(self, command, files, **env):
        """The launcher and its library are this machine's; `command` starts each rank."""
        done = run(PYTHON, "-m", "tutti.run", "-n", 2, "--no-prefix", "--timeout", JOB_TIMEOUT_S, *command, **env)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        told = sorted(line.split() for line in done.stdout.splitlines())
        self.assertEqual([words[:3] for words in told], [["RANK", "0", "2"], ["RANK", "1", "2"]])
        for words, file in zip(told, files):
            self.assertEqual(pathlib.Path(words[3]).name, file)

    def test_two_ranks_add(self):
        python, script = self.install(), self.folder / "ranks.py"
        script.write_text(SCRIPT)
        for transport in ("shm", "tcp"):
            with self.subTest(transport):
                self.check_ranks([*python, script], [f"_tutti.cpython-311-{FOREIGN}-linux-gnu.so"] * 2,
                                 TUTTI_TRANSPORT=transport)

    def test_ranks_of_two_processors_add(self):
        python, script = self.install(), self.folder / "both.py"
        script.write_text(SCRIPT)
        start = self.folder / "start"
        words = " ".join(f"'{word}'" for word in python)
        start.write_text(f"#!/bin/sh\n[ $TUTTI_RANK = 0 ] && exec '{PYTHON}' '{script}'\nexec {words} '{script}'\n")
        start.chmod(0o755)
        own = run(PYTHON, "-c", "from tutti import _tutti; print(_tutti.__file__)").stdout.strip()
        self.check_ranks([start], [pathlib.Path(own).name, f"_tutti.cpython-311-{FOREIGN}-linux-gnu.so"],
                         TUTTI_TRANSPORT="tcp")

    def test_two_ranks_add_over_old_libraries(self):
        if shutil.which(QEMU) is None:
            self.skipTest(f"this machine has no {QEMU} (tools/setup --cross)")
        root = self.folder / "old"
        unpack_old_system(self, FOREIGN, self.wheel, root)
        done = run(PYTHON, "-m", "tutti.run", "-n", 2, "--no-prefix", "--timeout", JOB_TIMEOUT_S, QEMU, "-L", root,
                   root / "tutti/bin/tutti-bench", *BENCH)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("allreduce", done.stdout)

    def test_torch_has_every_symbol_that_a_backend_needs(self):
        with zipfile.ZipFile(self.wheel) as archive:
            archive.extractall(self.folder / "wheel")
        found = sorted((self.folder / "wheel" / backends.FOLDER).rglob("*.so"))
        if not found:
            self.skipTest(f"{self.wheel.name} has no backend; tools/wheels --torch makes one")
        system = toolchain.Toolchain(WHEELS / FOREIGN, FOREIGN, FLOOR, debian.MIRROR).system()
        for backend in found:
            minor = backend.stem.removeprefix("torch-")
            torch = next((WHEELS / "torch").glob(f"{minor}.*-{FOREIGN}")) / "torch/lib"
            own = [self.folder / "wheel/tutti/lib/libtutti.so", *system]
            self.assertNotEqual(checks.unresolved(backend, own), set(), "the check does not see torch's symbols")
            self.assertEqual(checks.unresolved(backend, [*own, *(torch / name for name in backends.LIBRARIES)]), set())


class Tag(unittest.TestCase):
    def test_no_binary_needs_more_than_the_floor(self):
        for path in wheels():
            with self.subTest(path.name), zipfile.ZipFile(path) as archive:
                self.assertLessEqual(manylinux.glibc_of(archive), FLOOR)
                number = re.search(r"-manylinux_2_(\d+)_\w+\.whl$", path.name)
                self.assertTrue(number, path.name)
                self.assertLessEqual(manylinux.glibc_of(archive), int(number[1]))
                self.assertEqual([name for name in archive.namelist() if re.search(r"lib(fmt|spdlog)\b", name)], [])

    def test_auditwheel_agrees(self):
        for path in wheels():
            with self.subTest(path.name):
                done = run(PYTHON, "-m", "auditwheel", "show", "--json", path)
                told = json.loads(done.stdout)
                self.assertRegex(told["sym_tag"], r"^manylinux_2_(\d+)_")
                self.assertLessEqual(int(told["sym_tag"].split("_")[2]), FLOOR, told)
                self.assertLessEqual(set(told["external_libs"]), manylinux.TORCH, told)

    def test_the_record_has_every_file(self):
        for path in wheels():
            with self.subTest(path.name), zipfile.ZipFile(path) as archive:
                record = next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
                lines = archive.read(record).decode().splitlines()
                self.assertEqual({line.split(",")[0] for line in lines}, set(archive.namelist()))
                for name, digest in (line.rsplit(",", 2)[:2] for line in lines):
                    if digest:
                        self.assertIn(manylinux._record_line(name, archive.read(name)), lines)

    def test_the_manifest_names_the_backends_that_there_are(self):
        for path in wheels():
            with self.subTest(path.name), zipfile.ZipFile(path) as archive:
                inside = {name for name in archive.namelist() if name.startswith(backends.FOLDER)}
                if not inside:
                    continue
                manifest = json.loads(archive.read(f"{backends.FOLDER}/manifest.json"))
                files = {f"{backends.FOLDER}/{entry['file']}" for entry in manifest["backends"]}
                self.assertEqual(files | {f"{backends.FOLDER}/manifest.json"}, inside)
                for name in files:
                    self.assertEqual(archive.read(name)[:4], manylinux.ELF, name)


class OldSystem(unittest.TestCase):
    """The programs of the wheel over Debian 11's real libraries: tools/wheels has their packages."""

    def test_two_ranks_add(self):
        need_namespaces(self)
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            unpack_old_system(self, MACHINE, machines_wheel(), root)
            for name in ("dev", "proc", "tmp"):
                (root / name).mkdir()
            done = enter(root, [f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev"],
                         f"/tutti/bin/tutti-bench {' '.join(BENCH)} --ranks 2")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("allreduce", done.stdout)


class StableModule(unittest.TestCase):
    """The wheel with the stable ABI, under each newer Python that pyenv has."""

    def check(self, version):
        python = pyenv(version)
        if python is None:
            self.skipTest(f"pyenv has no Python {version}")
        path = wheel("cp312-abi3")
        with tempfile.TemporaryDirectory() as folder:
            env = pathlib.Path(folder) / "env"
            subprocess.run([python, "-m", "venv", env], check=True)
            done = run(env / "bin/pip", "install", "--quiet", "numpy")
            if done.returncode != 0:
                self.skipTest(f"numpy for Python {version} cannot be fetched: {done.stderr.strip()[-200:]}")
            done = run(env / "bin/pip", "install", "--quiet", "--no-index", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            script = pathlib.Path(folder) / "ranks.py"
            script.write_text(SCRIPT)
            done = run(env / "bin/python", "-m", "tutti.run", "-n", 2, "--no-prefix", "--timeout", 120, script)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(sorted(line.split()[1:3] for line in done.stdout.splitlines()), [["0", "2"], ["1", "2"]])
            self.assertIn("_tutti.abi3.so", done.stdout)

    def test_python_3_12(self):
        self.check("3.12")

    def test_python_3_13(self):
        self.check("3.13")


class Job(unittest.TestCase):
    """A job of DDP over the wheel's own backend. No compiler is on the PATH, and the backends' cache cannot be made."""

    def check(self, start):
        """`start(backend)` runs ranks/bare.py under torchrun on two ranks, and returns what it did."""
        told = {}
        for backend in ("tutti", "gloo"):
            done = start(backend)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertNotIn("building the backend", done.stderr)
            told[backend] = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("JOB "))[4:])
            self.assertEqual((told[backend]["size"], told[backend]["compilers"]), (2, []))
        for ours, theirs in zip(told["tutti"]["losses"], told["gloo"]["losses"]):
            self.assertAlmostEqual(ours, theirs, delta=1e-12 * abs(theirs))
        self.assertEqual(len(told["tutti"]["backends"]), 1)
        self.assertRegex(told["tutti"]["backends"][0], rf"/tutti/torch/prebuilt/[\w-]+/torch-{self.minor}\.so$")

    def setUp(self):
        self.wheel, self.minor = machines_wheel(), backends.recipe.minor(torch_version())
        with zipfile.ZipFile(self.wheel) as archive:
            if not any(name.endswith(f"/torch-{self.minor}.so") for name in archive.namelist()):
                self.skipTest(f"{self.wheel.name} has no backend for torch {self.minor}; tools/wheels --torch makes one")
        self.site = next((pathlib.Path(PYTHON).parent.parent / "lib").glob("python*/site-packages"))

    def test_an_environment_without_a_compiler(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            subprocess.run([PYTHON, "-m", "venv", "--without-pip", root / "env"], check=True)
            python = root / "env" / "bin" / "python"
            done = run(PYTHON, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", "--quiet", self.wheel)
            self.assertEqual(done.returncode, 0, done.stderr)
            own = next((root / "env" / "lib").glob("python*/site-packages"))
            (own / "torch.pth").write_text(support_paths(self.site))
            (root / "file").touch()
            self.check(lambda backend: subprocess.run(
                [python, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d",
                 "--rdzv-endpoint", "127.0.0.1:0", HERE / "ranks" / "bare.py", backend], capture_output=True, text=True,
                check=False, timeout=JOB_TIMEOUT_S, stdin=subprocess.DEVNULL, cwd=root,
                env={"PATH": str(root / "nothing"), "HOME": str(root), "OMP_NUM_THREADS": "1",
                     "TUTTI_CACHE_DIR": str(root / "file" / "cache")}))

    def test_a_bare_system(self):
        make_root(self)
        if f"python{ROOT_PYTHON}" != self.site.parent.name:
            self.skipTest(f"the bare system has Python {ROOT_PYTHON}, and torch is there for {self.site.parent.name}")
        self.check(self.in_root)

    def in_root(self, backend):
        """Installs the wheel with pip in a fresh environment of the root's own Python, and runs the job there.

        The root stays as it is: the environment is in memory, and the mounts end with their namespace.
        """
        inside = ("set -e; cd /mnt; python3 -m venv env; "
                  "env/bin/pip install --quiet --no-index --no-deps /mnt/wheels/*.whl; "
                  "for path in $SITES; do echo $path; done >$(echo env/lib/python3*/site-packages)/torch.pth; "
                  "touch file; OMP_NUM_THREADS=1 TUTTI_CACHE_DIR=/mnt/file/cache HOME=/mnt env/bin/python "
                  "-m torch.distributed.run --nproc-per-node 2 --master-addr 127.0.0.1 --master-port 29511 "
                  f"/mnt/ranks/bare.py {backend}")
        sites = support_paths(self.site).split()
        mounts = [f"mount -t tmpfs tmpfs {ROOT}/mnt", f"mkdir {ROOT}/mnt/wheels {ROOT}/mnt/ranks",
                  f"cp '{self.wheel}' {ROOT}/mnt/wheels", f"mount --bind -o ro '{HERE}/ranks' {ROOT}/mnt/ranks",
                  f"mount -t proc proc {ROOT}/proc", f"mount --rbind /dev {ROOT}/dev",
                  f"mount -t tmpfs tmpfs {ROOT}/dev/shm"]
        for number, site in enumerate(sites):
            mounts += [f"mkdir {ROOT}/mnt/site{number}", f"mount --bind -o ro '{site}' {ROOT}/mnt/site{number}"]
        names = " ".join(f"/mnt/site{number}" for number in range(len(sites)))
        return enter(ROOT, mounts, f"/bin/sh -c '{inside}'", SITES=names)


def support_paths(site):
    """The folders with the environment's packages: its own, and those that its .pth files name."""
    more = [line for file in sorted(site.glob("*.pth")) for line in file.read_text().splitlines()
            if line.startswith("/") and pathlib.Path(line).is_dir()]
    return "\n".join([str(site), *more]) + "\n"


def unpack_old_system(test, machine, path, root):
    """Debian 11's libraries, and the programs and libraries of a wheel."""
    packages = WHEELS / machine / "apt" / "packages"
    for name in ("libc6", "libgcc-s1", "libstdc++6", "zlib1g"):
        package = next(iter(packages.glob(f"{name}_*.deb")), None)
        if package is None:
            test.skipTest(f"{packages} has no {name}; tools/wheels fetches it")
        subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.startswith(("tutti/bin/", "tutti/lib/")):
                os.chmod(archive.extract(name, root), 0o755)


def foreign_python(test):
    """A folder with Debian's Python for the other processor, as qemu's -L takes it."""
    root = WHEELS / f"{FOREIGN}-python"
    if root.is_dir():
        return root
    if not MAKE:
        test.skipTest(f"there is no Python for {FOREIGN} in {root.relative_to(TREE)}; this test with --make fetches it")
    made = root.with_name(root.name + ".new")
    with tempfile.TemporaryDirectory() as folder, open(WHEELS / "logs" / f"{root.name}.log", "w", encoding="utf-8") as log:
        try:
            packages = debian.fetch(pathlib.Path(folder) / "apt", FOREIGN, debian.MIRROR, log,
                                    {SUITE: FOREIGN_PACKAGES})
        except debian.Unavailable as error:
            test.skipTest(f"Debian's Python for {FOREIGN} cannot be had: {error}")
        debian.unpack(packages, made, log)
    return made.rename(root)


def enter(root, mounts, command, user=None, network=False, timeout_s=JOB_TIMEOUT_S, **env):
    """Runs a command with another root, in namespaces of its own: the mounts end with it.

    network: with the machine's network, not with a loopback interface alone.
    """
    chroot = f"exec chroot {f'--userspec={user} ' if user else ''}{root} {command}"
    script = " && ".join([*mounts, *([] if network else ["ip link set lo up"]), chroot])
    namespaces = ["--mount", "--pid", "--fork", *([] if network else ["--net"]), "--kill-child"]
    return subprocess.run(["unshare", *namespaces, "sh", "-c", script], capture_output=True, text=True, check=False,
                          timeout=timeout_s, stdin=subprocess.DEVNULL,
                          env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", **env})


def need_namespaces(test):
    if os.geteuid() != 0:
        test.skipTest("only root can enter another root folder")
    if subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True, check=False).returncode != 0:
        test.skipTest("the kernel, or this container, allows no namespaces")


def make_root(test):
    """A bookworm with Python and nothing else that is not essential."""
    need_namespaces(test)
    if (ROOT / "usr" / "bin" / "python3").exists():
        return
    if not MAKE:
        test.skipTest("there is no bare root in build/bare-root; this test with --make makes one")
    if shutil.which("debootstrap") is None:
        test.skipTest("there is no debootstrap (tools/setup --tests)")
    made = ROOT.with_name("bare-root.new")
    shutil.rmtree(made, ignore_errors=True)
    done = subprocess.run(["debootstrap", "--variant=minbase", f"--include={ROOT_PACKAGES}", SUITE, made],
                          capture_output=True, text=True, check=False, timeout=MAKE_TIMEOUT_S)
    if done.returncode != 0:
        test.skipTest(f"debootstrap failed: {(done.stdout + done.stderr).strip()[-300:]}")
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(ROOT)
    made.rename(ROOT)


if __name__ == "__main__":
    unittest.main(argv=[word for word in sys.argv if word != "--make"])
