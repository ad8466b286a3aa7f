"""Starting ranks of python programs with the package that was installed for the tests."""
import contextlib
import errno
import json
import os
import pathlib
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parent.parent / "examples"
PYTHON = os.environ.get("TUTTI_TEST_PYTHON", "")
NEEDED = "tools/setup-python has not made an environment for the tests"
# Used as PYTHON is. If seed.py runs the test program, this forks a process that has imported torch.
SEED = os.environ.get("TUTTI_TEST_SEED")
FORKED = [sys.executable, "-IS", str(HERE / "seed.py"), "--fork", SEED, PYTHON] if SEED else [PYTHON]
TIMEOUT_S = 400
GRACE_S = 5  # after a rank has failed, for the other ranks to print their errors


def reason_to_skip():
    """Why tests cannot use PYTHON; "" if they can."""
    missing = pathlib.Path(PYTHON).parent.parent / "missing"
    if missing.is_file():
        return missing.read_text(encoding="utf-8").strip()
    return "" if PYTHON and os.access(PYTHON, os.X_OK) else NEEDED


def setUpModule():  # noqa: N802
    if reason := reason_to_skip():
        raise unittest.SkipTest(reason)


def need_module(name, library):
    """Skips a class of tests if the tests' environment lacks the module of that library."""
    done = run(PYTHON, "-c", f"import {name}")
    if done.returncode != 0:
        raise unittest.SkipTest(f"{library} cannot be imported in the tests' environment: "
                                + done.stderr.strip().splitlines()[-1])


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


def unused_port():
    """A port that nothing listens on. It is below those that the kernel gives to connections, so it stays unused."""
    lowest = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", random.randrange(lowest // 2, lowest)))
                return probe.getsockname()[1]
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise


@contextlib.contextmanager
def started(ranks, script, env, **how):
    """The processes of the program's ranks, without a launcher. At the end it kills those that still run."""
    job = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
           "MASTER_PORT": str(unused_port())}
    processes = []
    try:
        for rank in range(ranks):
            processes.append(subprocess.Popen([*FORKED, str(HERE / "ranks" / script)], text=True, **how,
                                              env=environment(RANK=str(rank), LOCAL_RANK=str(rank), **job, **env)))
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def outputs(processes):
    """The output of each process. A process that does not end in time is killed, and its output says so."""
    end, told = time.monotonic() + TIMEOUT_S, []
    for process in processes:
        try:
            told.append(process.communicate(timeout=max(0.1, end - time.monotonic()))[0])
        except subprocess.TimeoutExpired:
            process.kill()
            told.append(process.communicate()[0] + "\nwas killed, since it had not ended")
    return told


def run_ranks(ranks, script, timeout_s=TIMEOUT_S, **env):
    """The output of all ranks, and the exit status of the first that failed.

    If a rank fails, the others have GRACE_S to end; then they are killed.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as out, \
            tempfile.TemporaryFile("w+", errors="replace") as errors:
        with started(ranks, script, env, stdin=subprocess.DEVNULL, stdout=out, stderr=errors) as processes:
            end, failed = time.monotonic() + timeout_s, None
            while None in (codes := [process.poll() for process in processes]) and time.monotonic() < end:
                if failed is None and (failed := next(filter(None, codes), None)):
                    end = min(end, time.monotonic() + GRACE_S)
                time.sleep(0.02)
        out.seek(0)
        errors.seek(0)
        ends = ["was killed, since it had not ended" if code is None else f"ended with {code}" for code in codes]
        told = [f"rank {rank} of {ranks} {ends[rank]}\n" for rank in range(ranks) if codes[rank] != 0]
        code = failed or next(filter(None, codes), None) or (-signal.SIGKILL if None in codes else 0)
        return subprocess.CompletedProcess(script, code, out.read(), errors.read() + "".join(told))


def torchrun(ranks, script, options=(), **env):
    """The program under torch's own launcher. The launcher and all ranks import torch."""
    return run(PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", ranks, "--rdzv-backend", "c10d",
               "--rdzv-endpoint", "127.0.0.1:0", *options, HERE / "ranks" / script, **env)


class Cases(unittest.TestCase):
    """Cases of a program of ranks/, each a subtest."""

    def check_ranks(self, ranks, script, **env):
        self.check_cases(script, run_ranks(ranks, script, **env))

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
    done = run(*FORKED, "-c", script, HERE / source, name)
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout.strip()
