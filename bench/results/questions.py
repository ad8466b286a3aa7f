"""The comparisons of each question: commands of bench/compare and bench/hosts, and the rows made from their results.

A cell is one command whose results are kept even if the time ends before the next cell. The most important cells of a
question come first.
"""
import dataclasses
import statistics

from peers import torch_coalesced, torch_dtensor
from peers.running import human

from . import form

KI, MI = 1024, 1024 * 1024
LEAST_ROUNDS, MOST_ROUNDS = 3, 9
# A block of a contestant takes 0.3 s, and its processes take about as long to start and to end.
BLOCK_S, TORCH_BLOCK_S, HOSTS_BLOCK_S = 0.8, 0.4, 8
# The time of a command around its blocks: compiling MPI's program, trying each contestant, importing torch.
START_S, TORCH_START_S = 5, 30
ALLREDUCE_SIZES = (8, 1 * KI, 64 * KI, 1 * MI, 16 * MI, 128 * MI)
TORCH_SIZES = (8, 64 * KI, 1 * MI, 16 * MI, 128 * MI)
COMPARED = "float32, sum, in place; alternating rounds, medians"
WARM_UP = "5 % of a block's operations"


@dataclasses.dataclass(frozen=True)
class Options:
    """The builds and programs to measure with; an empty string leaves a choice to bench/compare or bench/hosts."""
    bench: str = ""
    switch: str = ""
    python: str = ""
    fi_provider: str = "net"


@dataclasses.dataclass(frozen=True)
class Cell:
    name: str
    program: str             # compare or hosts
    arguments: tuple
    rows: callable           # makes the rows from the program's JSON
    blocks: int              # in each round
    environment: tuple = ()  # (name, value)
    block_s: float = BLOCK_S
    start_s: float = START_S

    def seconds(self, rounds):
        return self.start_s + self.blocks * rounds * self.block_s


@dataclasses.dataclass(frozen=True)
class Question:
    name: str
    weight: int  # its share of the time, relative to the other questions
    cells: tuple
    setting: str = COMPARED
    warm_up: str = WARM_UP

    def rounds(self, seconds):
        """As many rounds as fit the time, the same for all cells."""
        for rounds in range(MOST_ROUNDS, LEAST_ROUNDS, -1):
            if sum(cell.seconds(rounds) for cell in self.cells) <= seconds:
                return rounds
        return LEAST_ROUNDS


def compare_rows(report):
    """Rows of bench/compare: tutti's time is the same for all peers of a case."""
    rows = {}
    for found in report["rows"]:
        case = {**found, "dtype": "float32"}
        key = tuple(case[name] for name in form.CASE)
        if (key, form.OURS) not in rows:
            rows[key, form.OURS] = form.row(case, form.OURS, statistics.median(found["tutti_us"]), found["tutti_us"])
        rows[key, found["peer"]] = form.row(case, found["peer"], statistics.median(found["peer_us"]), found["peer_us"],
                                            found["ratio"], [found["min"], found["max"]])
    return list(rows.values())


def pair_of_rows(case, ours_us, theirs_us, extra=()):
    """tutti's row and gloo's; extra: further (library, times) of the same case."""
    rows = [form.row(case, form.OURS, statistics.median(ours_us), ours_us)]
    for library, times in (("gloo", theirs_us), *extra):
        ratios = [ours / theirs for ours, theirs in zip(ours_us, times)]
        rows.append(form.row(case, library, statistics.median(times), times, statistics.median(ratios), ratios))
    return rows


def torch_rows(ranks):
    def rows(report):
        def case(collective, dtype, size):
            return {"collective": collective, "dtype": dtype, "bytes": size, "ranks": ranks, "transport": report["transport"]}
        found = []
        for each in report["rows"]:
            found += pair_of_rows(case("allreduce", each["dtype"], each["bytes"]), each["tutti"], each["gloo"])
        for each in report["lists"]:
            name = f"{torch_coalesced.NAMES[each['way']]}, {each['coalesced']} tensors"
            found += pair_of_rows(case(name, "float32", each["bytes"]), each["tutti"], each["gloo"])
        for each in report["dtensors"]:
            name = f"DTensor, {torch_dtensor.NAMES[each['dtensor']]}"
            found += pair_of_rows(case(name, "float32", each["bytes"]), each["tutti"], each["gloo"],
                                  [("no communication", each["alone"])])
        for each in report["steps"]:
            ours, theirs, alone = ([ms * 1000 for ms in each[f"{name}_ms"]] for name in ("tutti", "gloo", "alone"))
            name = f"DDP step, buckets of {each['bucket_kib']} KiB" if each["bucket_kib"] else "DDP step"
            found += pair_of_rows(case(name, "float32", each["bytes"]), ours, theirs, [("no communication", alone)])
        return found
    return rows


def hosts_rows(report):
    """Rows of bench/hosts, whose first contestant is tutti; contestants that failed have no times."""
    given, rows = report["arguments"], []
    ranks = given["hosts"] * given["ranks_per_host"]
    for size, times in report["ms"].items():
        case = {"collective": given["collective"], "dtype": "float32", "ranks": ranks, "transport": "tcp", "bytes": int(size)}
        ours = times[form.OURS]
        for library, ms in times.items():
            if not ms:
                continue
            ratios = [own / other for own, other in zip(ours, ms)] if library != form.OURS and ours else None
            rows.append(form.row(case, library, statistics.median(ms) * 1000, [each * 1000 for each in ms],
                                 statistics.median(ratios) if ratios else None, ratios))
    return rows


def compare_cell(options, transport, collective, ranks, size, peers):
    arguments = ["--transports", transport, "--collectives", collective, "--ranks", str(ranks), "--sizes", str(size),
                 "--peers", ",".join(peers), "--fi-provider", options.fi_provider,
                 *(["--bench", options.bench] if options.bench else [])]
    return Cell(f"{transport} {collective}, {ranks} ranks, {human(size)}", "compare", tuple(arguments), compare_rows,
                len(peers) + 1)


def torch_cell(options, name, transport, sizes, *extra, blocks):
    arguments = ["--torch", "--ranks", "2", "--sizes", ",".join(str(size) for size in sizes), *extra,
                 *(["--python", options.python] if options.python else [])]
    return Cell(f"{transport} {name}", "compare", tuple(arguments), torch_rows(2), blocks,
                (("TUTTI_TRANSPORT", "tcp"),) if transport == "tcp" else (), TORCH_BLOCK_S, TORCH_START_S)


def hosts_cell(options, size):
    arguments = ["--sizes", str(size), *(["--bench", options.bench] if options.bench else []),
                 *(["--switch", options.switch] if options.switch else []),
                 *(["--python", options.python] if options.python else [])]
    return Cell(f"hosts allreduce, {human(size)}", "hosts", tuple(arguments), hosts_rows, 3, (), HOSTS_BLOCK_S)


def on_transport(options, name, transport):
    cells = [compare_cell(options, transport, collective, 2, size, ["openmpi", "mpich"])
             for collective, sizes in (("allreduce", ALLREDUCE_SIZES), ("broadcast", (8, 64 * KI, 16 * MI)))
             for size in sizes]
    return Question(name, 4, tuple(cells))


def over_libraries(options):
    peers = {"ucx": ["ucx_perftest", "exchange", "openmpi", "tcp"], "ofi": ["fi_pingpong", "exchange", "openmpi", "tcp"]}
    cells = [compare_cell(options, transport, "allreduce", 2, size, peers[transport])
             for size in (8, 256, 64 * KI, 256 * KI, 1 * MI, 16 * MI) for transport in peers]
    return Question("libraries", 6, tuple(sorted(cells, key=lambda cell: not cell.name.startswith("ucx"))),
                    f"{COMPARED}; TCP on loopback, libfabric's provider {options.fi_provider}")


def over_ranks(options):
    cells = [compare_cell(options, transport, "allreduce", ranks, size, ["openmpi", "mpich"])
             for transport in ("shm", "tcp") for size in (1 * MI, 16 * MI, 64 * KI) for ranks in (2, 4, 8)]
    return Question("ranks", 6, tuple(cells))


def in_torch(options):
    cells = (torch_cell(options, "allreduce", "shm", TORCH_SIZES, blocks=12),
             torch_cell(options, "allreduce", "tcp", TORCH_SIZES, blocks=12),
             torch_cell(options, "lists of tensors", "shm", (), "--coalesced", blocks=20),
             torch_cell(options, "DTensors", "shm", (), "--dtensor", blocks=15),
             torch_cell(options, "steps of a network", "shm", (), "--ddp", blocks=15))
    return Question("torch", 5, cells, "in place; alternating rounds, medians; both backends in the same processes",
                    "5 operations of each case, 20 steps of a network")


def far_apart(options):
    return Question("far", 8, (hosts_cell(options, 1 * MI), hosts_cell(options, 64 * MI)),
                    "float32, sum, in place; 4 hosts (network namespaces), 1 Gbit/s, 20 ms there and back; alternating "
                    "rounds of 5 operations, medians", "2 operations of each job")


def questions(options):
    """All questions by name, in the order of form.QUESTIONS."""
    made = (on_transport(options, "one-host", "shm"), on_transport(options, "tcp", "tcp"), in_torch(options),
            over_libraries(options), over_ranks(options), far_apart(options))
    return {question.name: question for question in made}
