"""Runs of a program with two ranks, bounded in time; nothing that a run started is left when it is over."""
import contextlib
import ctypes
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
sys.path.insert(0, str(HERE.parent / "python"))
from support import PYTHON, environment  # noqa: E402

# A run is to take at most this long on two idle cores. A run that takes TIMEOUT_S is stopped: it hangs.
GOAL_S = 60
TIMEOUT_S = 4 * GOAL_S
PR_SET_CHILD_SUBREAPER = 36
# Torch's gloo cannot make a group where the variable names an interface that there is not. tutti does not read it.
NO_INTERFACE = "none0"
OVER_GLOO = {"GLOO_SOCKET_IFNAME": "lo"}
OVER_TUTTI = {"GLOO_SOCKET_IFNAME": NO_INTERFACE, "TUTTI_AS_GLOO": "1"}
BY_NAME = {"tutti": OVER_TUTTI, "gloo": OVER_GLOO}
# A program whose library needs an adapter chooses between that and the library's own network: gloo, or LightGBM's sockets.
BY_ADAPTER = {"tutti": {**OVER_GLOO, "NETWORK": "tutti"}, "gloo": {**OVER_GLOO, "NETWORK": "own"}}


@dataclasses.dataclass(frozen=True)
class Run:
    status: int
    out: str
    log: str
    seconds: float

    def __str__(self):
        return f"exit status {self.status}\n{self.out[-3000:]}\n{self.log[-6000:]}"

    def losses(self):
        return [float(word) for word in re.findall(r"^LOSS (\S+)$", self.out, re.MULTILINE)]

    def step_ms(self):
        return float(re.search(r"^STEP_MS (\S+)$", self.out, re.MULTILINE)[1])

    def groups(self):
        """The number of groups of both ranks that tutti made: rank 0 of each logs a line."""
        return len(re.findall(r"tutti \S+: job '[^']*' of 2 ranks on 1 host is complete", self.log))


def torchrun(program, ranks=2):
    return [PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", ranks, "--rdzv-backend", "c10d",
            "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1", PROGRAMS / program]


def tutti_run(program):
    return [PYTHON, "-m", "tutti.run", "-n", 2, "--no-prefix", PYTHON, PROGRAMS / program]


def accelerate_launch(program):
    # With --cpu the launcher starts a single process.
    options = "--multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no " \
              "--main_process_port 0"
    return [PYTHON, "-m", "accelerate.commands.accelerate_cli", "launch", *options.split(), PROGRAMS / program]


@dataclasses.dataclass(frozen=True)
class Client:
    """A library of another project, and the command that trains with it on two ranks."""
    title: str
    package: str
    command: list
    over: dict = dataclasses.field(default_factory=lambda: BY_NAME)
    beside: str = "gloo"  # the library's other network

    def version(self):
        """That of the package in the environment; None: it is not there."""
        script = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
        told = subprocess.run([PYTHON, "-c", script, self.package], capture_output=True, text=True, check=False,
                              env=environment(PYTHONPATH=""), stdin=subprocess.DEVNULL)
        return told.stdout.strip() if told.returncode == 0 else None


# Lightning and Ray start the second rank themselves.
CLIENTS = {
    "ddp": Client("DistributedDataParallel of PyTorch", "torch", torchrun("ddp_dcp.py")),
    "fsdp2": Client("FSDP2 of PyTorch", "torch", torchrun("fsdp2.py")),
    "lightning": Client("Lightning", "lightning", [PYTHON, PROGRAMS / "lightning_fit.py"]),
    "accelerate": Client("Accelerate", "accelerate", torchrun("accelerate_fit.py")),
    "accelerate-launch": Client("Accelerate's launcher", "accelerate", accelerate_launch("accelerate_fit.py")),
    "transformers": Client("Transformers", "transformers", torchrun("transformers_fit.py")),
    "deepspeed": Client("DeepSpeed", "deepspeed", torchrun("deepspeed_fit.py")),
    "ray": Client("Ray Train", "ray", [PYTHON, PROGRAMS / "ray_fit.py"]),
    "ray-collective": Client("ray.util.collective of Ray", "ray", [PYTHON, PROGRAMS / "ray_collective.py"], BY_ADAPTER),
    "torchft": Client("torchft", "torchft", [PYTHON, HERE / "replicas.py", PROGRAMS / "torchft_fit.py"], BY_ADAPTER),
    "lightgbm": Client("LightGBM", "lightgbm", tutti_run("lightgbm_fit.py"), BY_ADAPTER, "its own sockets"),
}


def text(path):
    return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")


def descendants():
    """The processes that this one, or one of them, has started."""
    parents = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name, in parentheses, may contain spaces.
            parents[int(path.parent.name)] = int(text(path).rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


@contextlib.contextmanager
def ends_what_it_starts():
    """On exit, kills all descendants. A descendant whose parent has ended becomes a child of this process."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        deadline = time.monotonic() + 30
        while (left := descendants()) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(0.05)


def folder_environment(folder, **more):
    """The environment of a program that uses no GPU and no network, and writes all of its files to the folder."""
    tools = pathlib.Path(PYTHON).parent
    own = {"PYTHONPATH": "", "CUDA_VISIBLE_DEVICES": "", "TUTTI_LOG": "info", "TMPDIR": folder, "HF_HOME": folder,
           "XDG_CACHE_HOME": folder, "RAY_TMPDIR": folder, "HF_HUB_OFFLINE": "1", "RAY_USAGE_STATS_ENABLED": "0",
           "RAY_DEDUP_LOGS": "0", "DS_ACCELERATOR": "cpu", "PATH": f"{tools}:{os.environ['PATH']}",
           "TORCH_EXTENSIONS_DIR": str(tools.parent / "extensions")}
    return environment(**{**own, **more})


def ray_workers(folder):
    """The files with the standard error of Ray's workers. mpirun's helpers may still remove folders: walk skips these."""
    logs = (pathlib.Path(path) for path, _, _ in os.walk(folder) if re.search(r"/session_2[^/]*/logs$", path))
    return sorted(file for path in logs for file in path.glob("worker-*.err"))


def run(command, timeout_s=TIMEOUT_S, **env):
    """Runs the command, which gets a new folder as its last argument."""
    with tempfile.TemporaryDirectory(prefix="clients-", ignore_cleanup_errors=True) as folder, \
            open(f"{folder}/out", "w+b") as out, open(f"{folder}/log", "w+b") as log, ends_what_it_starts():
        # No pipes: a process that stays behind would hold one open, and the wait for its end would be endless.
        began = time.monotonic()
        process = subprocess.Popen([*map(str, command), folder], stdin=subprocess.DEVNULL, stdout=out, stderr=log,
                                   cwd=folder, env=folder_environment(folder, **env))
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = f"none after {timeout_s} s"
        seconds = time.monotonic() - began
        return Run(status, text(f"{folder}/out"), "".join(map(text, [f"{folder}/log", *ray_workers(folder)])), seconds)
