"""Runs alternating rounds of short blocks, and compares the ratios of their times with goals."""
import dataclasses
import statistics
import sys

from .contestants import Case, Tutti
from .running import KI, MI, Failed, cores, human, number

LATENCY_BYTES, BANDWIDTH_BYTES = 8, 16 * MI
BLOCK_S = 0.3
# Estimates, so that a block takes about BLOCK_S: microseconds of an empty message, bytes per microsecond.
PACE = {"shm": (0.2, 6000), "tcp": (9, 2500), "ucx": (12, 2000), "ofi": (15, 2000)}
# If there are more ranks than cores, a peer's rank that spins keeps its core for a time slice.
SLICE_US = 4000
SHARED_CLOCK_BYTES = 64 * KI  # below this size, programs time batches of BATCH operations
BATCH, MIN_ITERATIONS, MAX_ITERATIONS = 100, 8, 100_000

# (transport, bytes): the limit of tutti's time, in multiples of Open MPI's
OPENMPI_GOALS = {
    ("shm", 8): 2.0, ("shm", 64 * KI): 0.8, ("shm", 1 * MI): 0.6, ("shm", 128 * MI): 0.3,
    ("tcp", 8): 2.0, ("tcp", 16 * MI): 1.2,
}


def iterations_of(transport, size, ranks=2):
    start_us, bytes_per_us = PACE[transport]
    if ranks > cores():
        start_us += ranks * SLICE_US
    fit = int(BLOCK_S * 1e6 / (start_us + size / bytes_per_us))
    if size < SHARED_CLOCK_BYTES:
        return min(max(fit // BATCH, 2), MAX_ITERATIONS // BATCH) * BATCH
    return min(max(fit, MIN_ITERATIONS), MAX_ITERATIONS)


def case_of(collective, transport, size, ranks=2):
    return Case(collective, transport, size, iterations_of(transport, size, ranks), ranks)


def shortest(case):
    """The same case with the fewest iterations, to find out whether it works."""
    return dataclasses.replace(case, iterations=2 * BATCH if case.bytes < SHARED_CLOCK_BYTES else 2)


def goal_of(case, peer):
    """The limit of tutti's time, in multiples of the peer's time; None if the case has no goal."""
    if case.collective != "allreduce" or case.ranks != 2:
        return None
    if peer in ("ucx_perftest", "fi_pingpong"):
        return 1.5 if case.bytes == LATENCY_BYTES else None
    if peer.endswith("'s exchange"):
        # A ring of two ranks sends each byte once each way. The goal is 0.8 of the bandwidth of both directions.
        return 1 / 0.8 if case.transport in ("ucx", "ofi") and case.bytes == BANDWIDTH_BYTES else None
    if peer == "tutti over tcp":
        return 1.25
    return OPENMPI_GOALS.get((case.transport, case.bytes)) if peer == "Open MPI" else None


@dataclasses.dataclass(frozen=True)
class Row:
    case: Case
    peer: str
    tutti_us: list
    peer_us: list

    @property
    def ratios(self):
        return [a / b for a, b in zip(self.tutti_us, self.peer_us)]

    @property
    def ratio(self):
        return statistics.median(self.ratios)

    @property
    def goal(self):
        return goal_of(self.case, self.peer)

    @property
    def missed(self):
        return self.goal is not None and self.ratio > self.goal

    @property
    def slower(self):
        return False

    def judgement(self):
        return "" if self.goal is None else f"≤ {self.goal:g}{' (missed)' if self.missed else ''}"

    def cells(self):
        return [self.case.transport, self.case.collective, str(self.case.ranks), human(self.case.bytes), number(median(self.tutti_us)),
                self.peer, number(median(self.peer_us)), f"{self.ratio:.2f}",
                f"{min(self.ratios):.2f}–{max(self.ratios):.2f}", self.judgement()]

    def as_json(self):
        return {"transport": self.case.transport, "collective": self.case.collective, "ranks": self.case.ranks, "bytes": self.case.bytes,
                "peer": self.peer, "tutti_us": self.tutti_us, "peer_us": self.peer_us, "ratio": self.ratio,
                "min": min(self.ratios), "max": max(self.ratios), "goal": self.goal,
                "missed": self.missed}


# A row is slower than an older build's if the median of the ratios is over this, and over all ratios of the older
# build to itself in the same rounds.
SLOWER = 1.03


@dataclasses.dataclass(frozen=True)
class BuildRow(Row):
    """The comparison with another build of tutti, which takes two turns in each round: their ratios are the noise."""
    again_us: list

    @property
    def noise(self):
        return [a / b for a, b in zip(self.again_us, self.peer_us)]

    @property
    def slower(self):
        return self.ratio > max(SLOWER, *self.noise)

    def judgement(self):
        return f"{self.peer} ÷ itself {min(self.noise):.2f}–{max(self.noise):.2f}{' (slower)' if self.slower else ''}"

    def as_json(self):
        return {**super().as_json(), "again_us": self.again_us, "slower": self.slower}


HEADINGS = ["transport", "collective", "ranks", "size", "tutti µs", "peer", "peer µs", "median of ratios", "min–max", "goal"]


def median(values):
    return statistics.median(values)


def table_line(cells):
    return f"| {' | '.join(cells)} |"


def told(case):
    return f"{case.transport} {case.collective}, {case.ranks} ranks, {human(case.bytes)}"


def alternate(case, contestants, rounds, progress=None):
    """Returns ({name: the median time of its block in each round}, {name: the error of a contestant that failed}).
    The order changes from round to round. If the first contestant fails, raises Failed."""
    times, failures = {contestant.name: [] for contestant in contestants}, {}
    for index in range(rounds):
        for contestant in contestants if index % 2 == 0 else reversed(contestants):
            if contestant.name in failures:
                continue
            try:
                times[contestant.name].append(contestant.median_us(case))
            except Failed as why:
                if contestant is contestants[0]:
                    raise
                failures[contestant.name] = why
        if progress:
            progress(f"{told(case)}: round {index + 1} of {rounds}")
    return times, failures


class Again:
    """A build's second turn, which measures the machine's noise."""

    def __init__(self, peer):
        self.peer, self.name = peer, peer.name + ", again"

    def median_us(self, case):
        return self.peer.median_us(case)


def show_progress(text=""):
    """On a terminal, rewrites one line."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def compare(case, tutti, peers, rounds, progress=None):
    """Returns (a row for each peer, {name: the error of a peer that failed}). All take turns in the same rounds."""
    twice = [Again(peer) for peer in peers if isinstance(peer, Tutti) and not peer.transport]
    times, failures = alternate(case, [tutti, *peers, *twice], rounds, progress)
    again = {each.peer.name: times[each.name] for each in twice}
    rows = [BuildRow(case, peer.name, times[tutti.name], times[peer.name], again[peer.name]) if peer.name in again else
            Row(case, peer.name, times[tutti.name], times[peer.name]) for peer in peers if peer.name not in failures]
    return rows, failures


def compare_twice(case, tutti, peers, rounds, progress=None):
    """Like compare(), but if a row seems slower than another build, measures again and returns the second result."""
    first = compare(case, tutti, peers, rounds, progress)
    return compare(case, tutti, peers, rounds, progress) if any(row.slower for row in first[0]) else first
