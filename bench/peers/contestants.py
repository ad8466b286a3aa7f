"""The contestants: tutti, MPI libraries, and the ping-pong programs of UCX and libfabric.

A contestant has a name, says why it cannot do a case (refuses), and times one short block of it
(median_us). All of them run as processes of this machine.
"""
import dataclasses
import json
import os
import pathlib
import re
import shutil

from .running import Failed, cores, free_port, run, run_pair

HERE = pathlib.Path(__file__).resolve().parent
MPI_COLLECTIVES = ("allreduce", "broadcast", "exchange")  # mpi_collective.c's


@dataclasses.dataclass(frozen=True)
class Case:
    collective: str  # tutti-bench's name for it; exchange: one message each way at once
    transport: str   # tutti's name for it: shm, tcp, ucx, ofi
    bytes: int
    iterations: int
    ranks: int = 2

    @property
    def warmup(self):
        return max(2, self.iterations // 20)


@dataclasses.dataclass(frozen=True)
class Wires:
    """The transports and devices of UCX and libfabric: the same ones for every contestant that uses these libraries."""
    ucx_tls: str = "tcp,self"
    devices: str = "lo"
    fi_provider: str = "tcp;ofi_rxm"

    def environment(self, transport):
        if transport == "ucx":
            return {"UCX_TLS": self.ucx_tls, "UCX_NET_DEVICES": self.devices}
        if transport == "ofi":
            return {"FI_PROVIDER": self.fi_provider, "FI_TCP_IFACE": self.devices}
        return {}

    def tuttis(self, transport):
        """Returns the same for tutti. Without these variables tutti chooses devices that reach other hosts."""
        if transport not in ("ucx", "ofi"):
            return {}
        is_interface = (pathlib.Path("/sys/class/net") / self.devices).exists()
        return {**self.environment(transport), "TUTTI_OFI_PROVIDER": self.fi_provider,
                **({"TUTTI_IFACE": self.devices} if is_interface else {})}


class Contestant:
    name = ""

    def version(self):
        return ""

    def refuses(self, case):
        """The reason why the contestant cannot run a case; None if it can."""
        return None

    def median_us(self, case):
        raise NotImplementedError


def require(*programs):
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise Failed(f"{', '.join(missing)} missing. What to do: run tools/setup --bench")


def rows_of(text):
    """tutti-bench's JSON: a list, an object with "rows", or one object a line."""
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError:
        parsed = [json.loads(line) for line in text.splitlines() if line.strip()]
    if isinstance(parsed, dict):
        parsed = parsed.get("rows", [parsed])
    return [row for row in parsed if "median_us" in row]


class Tutti(Contestant):
    def __init__(self, bench, scratch, wires, transport=None, name="tutti"):
        """transport: measures every case over this transport; None: over the case's own."""
        self.bench, self.json, self.wires = bench, scratch / "tutti.json", wires
        self.transport = transport
        self.name = f"tutti over {transport}" if transport else name

    def refuses(self, case):
        if self.transport and (case.transport == self.transport or case.transport not in ("ucx", "ofi")):
            return "compares transports of networks"
        return None

    def median_us(self, case):
        transport = self.transport or case.transport
        self.json.unlink(missing_ok=True)
        # Name one transport only: beside a network's library tutti must not use shared memory.
        run([self.bench, case.collective, "--ranks", case.ranks, "--transport", transport, "-b", case.bytes, "-e", case.bytes,
             "-n", case.iterations, "-w", case.warmup, "--dtype", "float32", "--op", "sum", "--inplace-only",
             "--json", self.json], env={**os.environ, **self.wires.tuttis(transport)})
        rows = rows_of(self.json.read_text(encoding="utf-8"))
        if len(rows) != 1:
            raise Failed(f"tutti-bench gave {len(rows)} rows for one size")
        return float(rows[0]["median_us"])


class Mpi(Contestant):
    """An MPI library, whose own programs compile and start bench/peers/mpi_collective.c."""
    compiler, launcher = "", ""

    def __init__(self, scratch, wires):
        require(self.compiler, self.launcher)
        self.program, self.wires = scratch / f"{self.compiler}.program", wires
        run([self.compiler, "-std=c11", "-D_GNU_SOURCE", "-O3", "-Wall", "-Wextra", "-o", self.program,
             HERE / "mpi_collective.c"])

    def options(self, transport):
        """Returns the launcher's options for a transport, None if this library has no such transport."""
        raise NotImplementedError

    def binding(self, ranks):
        """Returns the launcher's options: each rank on its own core, or, with too few cores, no pinning, like tutti."""
        raise NotImplementedError

    def environment(self, transport):
        return self.wires.environment(transport)

    def refuses(self, case):
        if case.collective not in MPI_COLLECTIVES:
            return f"measures no {case.collective}"
        return f"has no {case.transport}" if self.options(case.transport) is None else None

    def median_us(self, case):
        env = {**os.environ, **self.environment(case.transport)}
        return float(run([self.launcher, "-n", case.ranks, *self.binding(case.ranks),
                          *self.options(case.transport), self.program, case.collective,
                          case.bytes, case.iterations, case.warmup], env=env))


class OpenMpi(Mpi):
    name, compiler, launcher = "Open MPI", "mpicc.openmpi", "mpirun.openmpi"

    def version(self):
        return run([self.launcher, "--version"]).split("\n")[0].split()[-1]

    def options(self, transport):
        chosen = {
            "shm": [],
            "tcp": ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"],
            # Without these options Open MPI uses UCX only with an RDMA adapter.
            "ucx": ["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_devices", "any"],
            "ofi": ["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include",
                    self.wires.fi_provider],
        }[transport]
        return chosen

    def binding(self, ranks):
        return ["--bind-to", "core"] if ranks <= cores() else ["--bind-to", "none", "--oversubscribe"]

    def environment(self, transport):
        as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.geteuid() == 0 else {}
        return {**as_root, **super().environment(transport)}


class Mpich(Mpi):
    name, compiler, launcher = "MPICH", "mpicc.mpich", "mpiexec.mpich"

    def __init__(self, scratch, wires):
        super().__init__(scratch, wires)
        found = re.search(r"Device:\s*ch4:(\w+)", run(["mpichversion"]))
        self.library = found.group(1) if found else ""  # the library that it was built over

    def version(self):
        return re.search(r"Version:\s*(\S+)", run(["mpichversion"])).group(1)

    def options(self, transport):
        return [] if transport in ("shm", "tcp", self.library) else None

    def binding(self, ranks):
        return ["-bind-to", "core"] if ranks <= cores() else ["-bind-to", "none"]

    def environment(self, transport):
        if transport == "shm":
            return {}
        # Makes MPICH treat two processes of one host like two hosts. Its library provides its TCP.
        library = self.library if transport == "tcp" else transport
        over = Wires() if transport == "tcp" else self.wires
        return {"MPIR_CVAR_NOLOCAL": "1", **over.environment(library)}


class Exchange(Contestant):
    """Times one message each way at once through Open MPI: no allreduce of two ranks can be faster."""

    def __init__(self, openmpi):
        self.openmpi, self.name = openmpi, f"{openmpi.name}'s exchange"

    def refuses(self, case):
        if case.collective != "allreduce" or case.ranks != 2:
            return "is a limit of allreduces of two"
        return self.openmpi.refuses(case)

    def median_us(self, case):
        return self.openmpi.median_us(dataclasses.replace(case, collective="exchange"))


class PingPong(Contestant):
    """A library's own ping-pong: half a round trip of one message."""
    transport = ""

    def __init__(self, wires):
        require(self.name)
        self.wires = wires

    def refuses(self, case):
        return None if case.transport == self.transport and case.ranks == 2 else f"measures {self.transport} only, of two"

    def environment(self):
        return {**os.environ, **self.wires.environment(self.transport)}


class UcxPerftest(PingPong):
    name, transport = "ucx_perftest", "ucx"

    def version(self):
        return re.search(r"(\d+\.\d+\.\d+)", run(["ucx_info", "-v"])).group(1)

    def median_us(self, case):
        command = [self.name, "-p", free_port(), "-t", "tag_lat", "-s", case.bytes, "-n", case.iterations,
                   "-w", case.warmup, "-f", "-v"]
        return ucx_perftest_us(run_pair(command, [*command, "127.0.0.1"], env=self.environment()))


def ucx_perftest_us(text):
    """The latency, in microseconds, in the output of ucx_perftest -f -v: iterations, typical, average and overall
    latency, …. Returns the typical one, or the overall one if the typical one is 0."""
    rows = [line.split(",") for line in text.splitlines() if re.fullmatch(r"[\d.]+(,[\d.]+){3,}", line.strip())]
    if not rows:
        raise Failed(f"ucx_perftest gave no result: {text[-500:]}")
    typical, _, overall = map(float, rows[-1][1:4])
    return typical or overall


class FiPingPong(PingPong):
    name, transport = "fi_pingpong", "ofi"

    def version(self):
        return re.search(r"libfabric:\s*(\S+)", run(["fi_info", "--version"])).group(1)

    def median_us(self, case):
        common = [self.name, "-p", self.wires.fi_provider, "-e", "rdm", "-m", "tagged", "-I", case.iterations,
                  "-S", case.bytes]
        port = free_port()
        return fi_pingpong_us(run_pair([*common, "-B", port], [*common, "-P", port, "127.0.0.1"],
                                       env=self.environment()))


def fi_pingpong_us(text):
    """usec/xfer in the last row of fi_pingpong: the mean of half a round trip. fi_pingpong computes no median."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    heads = [line for line in lines if "usec/xfer" in line]
    if not heads or len(lines[-1]) != len(heads[-1]):
        raise Failed(f"fi_pingpong gave no result: {text[-500:]}")
    return float(lines[-1][heads[-1].index("usec/xfer")])
