"""Starting ranks of python programs with the package that was installed for the tests."""
import json
import os
import pathlib
import select
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parent.parent / "examples"
PYTHON = os.environ.get("TUTTI_TEST_PYTHON", "")
NEEDED = "tools/setup-python has not made an environment for the tests"
TIMEOUT_S = 400


def setUpModule():  # noqa: N802
    missing = pathlib.Path(PYTHON).parent.parent / "missing"
    if missing.is_file():
        raise unittest.SkipTest(missing.read_text(encoding="utf-8").strip())
    if not PYTHON or not os.access(PYTHON, os.X_OK):
        raise unittest.SkipTest(NEEDED)


def environment(**more):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TUTTI_", "PYTHON"))}
    env.update({"PYTHONPATH": str(HERE / "ranks"), "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR",
                "TUTTI_DIGITS": str(EXAMPLES / "digits" / "digits.csv.gz"),
                "PYTHONDONTWRITEBYTECODE": "1",
                "TORCH_FR_DUMP_ON_TIMEOUT": "0"})  # else torch writes to the user's cache folder when a group fails
    for name in ("TUTTI_CACHE_DIR", "TUTTI_TEST_FOLDER", "TUTTI_TEST_KEEP_GOING"):
        if name in os.environ:
            env[name] = os.environ[name]
    env.update(more)
    return env


def run(*command, timeout_s=TIMEOUT_S, **env):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                          timeout=timeout_s, env=environment(**env), stdin=subprocess.DEVNULL)


def ended(process):
    """When the process ended; it is waited for no longer than a test may take."""
    descriptor = os.pidfd_open(process.pid)
    try:
        if not select.select([descriptor], [], [], TIMEOUT_S)[0]:
            raise subprocess.TimeoutExpired(process.args, TIMEOUT_S)
        return time.time()
    finally:
        os.close(descriptor)


def torchrun(ranks, script, **env):
    """The program under torch's own launcher."""
    return run(PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", ranks, "--rdzv-backend", "c10d",
               "--rdzv-endpoint", "127.0.0.1:0", HERE / "ranks" / script, **env)


class Cases(unittest.TestCase):
    """Cases of a program of ranks/, each a subtest."""

    def check_ranks(self, ranks, script, **env):
        self.check_cases(script, torchrun(ranks, script, **env))

    def check_cases(self, script, done):
        written = (HERE / "ranks" / script).read_text(encoding="utf-8").count("\n@case\n")
        cases = [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("CASE {")]
        for case in cases:
            with self.subTest(case["name"]):
                if case["failure"]:
                    self.fail(case["failure"])
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-5000:])
        self.assertEqual(len(cases), written)
        for line in done.stderr.splitlines():
            if "a step takes" in line:
                print(line, file=sys.stderr)


def compiled(source, name):
    """A module for the environment's torch, compiled once as the backend is, beside it, whichever process is first."""
    script = ("import hashlib, pathlib, subprocess, sys, torch, tutti.torch._build as b\n"
              "source, name = pathlib.Path(sys.argv[1]), sys.argv[2]\n"
              "identity = hashlib.sha256(source.read_bytes() + torch.__version__.encode()).hexdigest()[:16]\n"
              "target = b._cache() / f'{name}-{identity}.so'\n"
              "words = [w.replace(b.NAME, name).format(source=source, target=target) for w in b._flags()]\n"
              "with b._locked(target.parent):\n"
              "    if not target.exists(): subprocess.run(b._compiler() + words, check=True)\n"
              "print(target)")
    done = run(PYTHON, "-c", script, HERE / source, name)
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout.strip()
