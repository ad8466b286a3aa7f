"""Alternating rounds of short blocks, the ratios that come of them, and the goals they are held to."""
import dataclasses
import statistics
import sys

from .contestants import Case
from .running import KI, MI, Failed, human, number

LATENCY_BYTES, BANDWIDTH_BYTES = 8, 16 * MI
BLOCK_S = 0.3
# Guesses, only to make blocks of about that long: microseconds of an empty message, bytes a microsecond.
PACE = {"shm": (0.2, 6000), "tcp": (9, 2500), "ucx": (12, 2000), "ofi": (15, 2000)}
SHARED_CLOCK_BYTES = 64 * KI  # below, programs time batches of a hundred
BATCH, MIN_ITERATIONS, MAX_ITERATIONS = 100, 8, 100_000

# transport, bytes: what tutti may take in times of Open MPI
OPENMPI_GOALS = {
    ("shm", 8): 2.0, ("shm", 64 * KI): 0.8, ("shm", 1 * MI): 0.6, ("shm", 128 * MI): 0.3,
    ("tcp", 8): 2.0, ("tcp", 16 * MI): 1.2,
}


def iterations_of(transport, size):
    start_us, bytes_per_us = PACE[transport]
    fit = int(BLOCK_S * 1e6 / (start_us + size / bytes_per_us))
    if size < SHARED_CLOCK_BYTES:
        return min(max(fit // BATCH, 2), MAX_ITERATIONS // BATCH) * BATCH
    return min(max(fit, MIN_ITERATIONS), MAX_ITERATIONS)


def case_of(collective, transport, size):
    return Case(collective, transport, size, iterations_of(transport, size))


def shortest(case):
    """The same case, only to see whether it works."""
    return dataclasses.replace(case, iterations=2 * BATCH if case.bytes < SHARED_CLOCK_BYTES else 2)


def goal_of(case, peer):
    """The most that tutti's time may be, in times of the peer's; None where nothing was promised."""
    if case.collective != "allreduce":
        return None
    if peer in ("ucx_perftest", "fi_pingpong"):
        return 1.5 if case.bytes == LATENCY_BYTES else None
    if peer.endswith("'s exchange"):
        # A ring of two sends each byte once each way: 0.8 of what both directions carry.
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

    def judgement(self):
        return "" if self.goal is None else f"≤ {self.goal:g}{' (missed)' if self.missed else ''}"

    def cells(self):
        return [self.case.transport, self.case.collective, human(self.case.bytes), number(median(self.tutti_us)),
                self.peer, number(median(self.peer_us)), f"{self.ratio:.2f}",
                f"{min(self.ratios):.2f}–{max(self.ratios):.2f}", self.judgement()]

    def as_json(self):
        return {"transport": self.case.transport, "collective": self.case.collective, "bytes": self.case.bytes,
                "peer": self.peer, "tutti_us": self.tutti_us, "peer_us": self.peer_us, "ratio": self.ratio,
                "min": min(self.ratios), "max": max(self.ratios), "goal": self.goal,
                "missed": self.missed}


HEADINGS = ["transport", "collective", "size", "tutti µs", "peer", "peer µs", "median of ratios", "min–max", "goal"]


def median(values):
    return statistics.median(values)


def table_line(cells):
    return f"| {' | '.join(cells)} |"


def alternate(case, contestants, rounds, progress=None):
    """({name: a block's median time of each round}, {name: why it gave up}). Who goes first changes from round
    to round. The first contestant's failure is everyone's: Failed."""
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
            progress(f"{case.transport} {case.collective} {human(case.bytes)}: round {index + 1} of {rounds}")
    return times, failures


def show_progress(text=""):
    """One line that changes, where someone watches."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def compare(case, tutti, peers, rounds, progress=None):
    """(a row for each peer, {name: why it gave up}); all took turns with tutti in the same rounds."""
    times, failures = alternate(case, [tutti, *peers], rounds, progress)
    rows = [Row(case, peer.name, times[tutti.name], times[peer.name]) for peer in peers if peer.name not in failures]
    return rows, failures
