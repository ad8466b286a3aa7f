"""Times calls of torch.distributed on all ranks, over several groups in turns, and compares the times."""
import statistics
import time

BLOCK_S = 0.15


def timed(function, iterations):
    """The mean time of a call in microseconds."""
    began = time.perf_counter()
    for _ in range(iterations):
        function()
    return (time.perf_counter() - began) / iterations * 1e6


class Timing:
    def __init__(self, dist, torch):
        self.dist, self.torch = dist, torch

    def measure(self, group, call, iterations):
        self.dist.barrier(group=group)
        return timed(call, iterations)

    def iterations_for(self, group, call):
        """The iterations that take about BLOCK_S by rank 0's clock. Rank 0 broadcasts the number to all ranks."""
        self.measure(group, call, 2)
        guess = self.measure(group, call, 3)
        count = self.torch.tensor([int(min(max(BLOCK_S * 1e6 / guess, 3), 20_000))])
        self.dist.broadcast(count, 0)
        return int(count)

    def in_turns(self, groups, call_of, rounds):
        """{name: the mean time of a call in each round}. call_of makes the call of a group."""
        calls = {name: call_of(group) for name, group in groups.items()}
        counts = {name: self.iterations_for(groups[name], call) for name, call in calls.items()}
        times = {name: [] for name in groups}
        for _ in range(rounds):
            for name, call in calls.items():
                times[name].append(self.measure(groups[name], call, counts[name]))
        return times


def with_ratios(found, goal, unit=""):
    """The row with the rounds' ratios, tutti's time divided by gloo's. goal: the most that their median may be, or None.

    unit: what follows the names of the backends in the row's keys.
    """
    ratios = [ours / theirs for ours, theirs in zip(found["tutti" + unit], found["gloo" + unit])]
    ratio = statistics.median(ratios)
    return {**found, "ratio": ratio, "ratios": ratios, "goal": goal, "missed": goal is not None and ratio > goal}


def cells(row):
    """Both medians, the ratio and its spread, and the goal, for the end of a line of a table."""
    judged = "" if row["goal"] is None else f"≤ {row['goal']:.3g}{' (missed)' if row['missed'] else ''}"
    return (f"{statistics.median(row['tutti']):.4g} | {statistics.median(row['gloo']):.4g} | {row['ratio']:.3f} | "
            f"{min(row['ratios']):.3f}–{max(row['ratios']):.3f} | {judged} |")
