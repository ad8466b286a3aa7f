"""The contestants of bench/hosts: each runs one job, with one rank or more on every host, and times a collective."""
import dataclasses
import json
import os
import pathlib
import stat
import string
import subprocess

from peers.running import Failed, complaint, run

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE_S = 300


@dataclasses.dataclass(frozen=True)
class Case:
    collective: str
    bytes: int
    iterations: int
    warmup: int
    layout: str  # a letter for each rank: its host


def spoken(hosts, processes):
    """Waits for all processes and returns the output of rank 0; raises Failed if a rank fails or does not end."""
    try:
        said = hosts.ends(processes, PATIENCE_S)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"timed out after {PATIENCE_S} s") from error
    for rank, (code, text) in enumerate(said):
        if code != 0:
            raise Failed(f"rank {rank}: exit status {code}: {complaint(text)}\n{text[-2000:]}")
    return said[0][1]


class Tutti:
    def __init__(self, hosts, bench, name, settings):
        self.hosts, self.bench, self.name, self.settings = hosts, str(bench), name, settings
        self.version = f"{name} {run([bench, '--version']).strip()}"

    def refuses(self, _case):
        return None

    def median_us(self, network, case):
        command = [self.bench, case.collective, "-b", case.bytes, "-e", case.bytes, "-n", case.iterations, "-w",
                   case.warmup, "--dtype", "float32", "--op", "sum", "--inplace-only", "--no-check", "--json", "-"]
        said = spoken(self.hosts, network.start(case.layout, *map(str, command), env=self.settings))
        rows = [json.loads(line) for line in said.splitlines() if line.startswith("{") and '"median_us"' in line]
        if not rows:
            try:
                whole = json.loads(said[said.index("{"):])
            except ValueError as error:
                raise Failed(f"tutti-bench gave no row: {complaint(said)}") from error
            rows = [row for row in whole.get("rows", [whole]) if "median_us" in row]
        return float(rows[0]["median_us"])


class OpenMpi:
    name = "Open MPI"

    def __init__(self, hosts, scratch):
        self.hosts, self.scratch = hosts, scratch
        self.program = scratch / "mpi_collective"
        self.version = f"{self.name} {run(['mpirun.openmpi', '--version']).splitlines()[0].split()[-1]}"
        run(["mpicc.openmpi", "-std=c11", "-D_GNU_SOURCE", "-O3", "-o", self.program,
             HERE.parent / "peers" / "mpi_collective.c"])

    def refuses(self, case):
        return None if case.collective in ("allreduce", "broadcast") else f"measures no {case.collective}"

    def agent(self, network):
        """Writes the program that mpirun takes for ssh: it runs a command on the host of an address, under its name."""
        path = self.scratch / "agent"
        cases = "".join(f"{network.address(i)}) name={name};;\n" for i, name in enumerate(network.names))
        path.write_text('#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\ncase $1 in\n' + cases +
                        'esac\nshift\nexec ip netns exec $name unshare -u bash -c "hostname $name; $*"\n', encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def median_us(self, network, case):
        ranks = [f"{network.address(host)}:{case.layout.count(letter)}"
                 for host, letter in enumerate(sorted(set(case.layout)))]
        command = ["mpirun.openmpi", "--mca", "plm_rsh_agent", self.agent(network), "--host", ",".join(ranks),
                   "-n", len(case.layout), "--mca", "pml", "ob1", "--mca", "btl", "vader,tcp,self",
                   "--mca", "btl_tcp_if_include", network.device, "--mca", "oob_tcp_if_include", network.device,
                   "--mca", "mpi_yield_when_idle", "1", "--bind-to", "none", self.program, case.collective, case.bytes,
                   case.iterations, case.warmup]
        first = network.names[0]
        script = f"hostname {first}; exec " + " ".join(map(str, command))
        env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        said = spoken(self.hosts, network.start("a", "unshare", "-u", "bash", "-c", script, env=env))
        return float(said.split()[-1])


class Gloo:
    name = "gloo"
    port = 29_501

    def __init__(self, hosts, python):
        self.hosts, self.python = hosts, python
        self.version = f"torch {run([python, '-c', 'import torch; print(torch.__version__)']).strip()}"

    def refuses(self, case):
        return None if case.collective == "allreduce" else f"measures no {case.collective}"

    def median_us(self, network, case):
        url = f"tcp://{network.address(0)}:{self.port}"
        command = [self.python, HERE / "gloo_rank.py", url, network.device, case.bytes, case.iterations, case.warmup]
        env = {"OMP_NUM_THREADS": "1"}
        said = spoken(self.hosts, network.start(case.layout, *map(str, command), env=env))
        return float(said.split()[-1])


def layout(hosts, ranks_per_host):
    """The host of each rank as a letter, such as "aabb": neighbouring ranks share a host."""
    return "".join(letter * ranks_per_host for letter in string.ascii_letters[:hosts])


def python_with_torch(given):
    made = HERE.parents[1] / "build" / "python-env" / "bin" / "python"
    return given or (str(made) if os.access(made, os.X_OK) else "python3")
