"""Times many small tensors in one coalesced call, with tutti and gloo in turns.

Sums are measured in two ways: all_reduce_coalesced() with the whole list, and a coalescing manager around an
all_reduce() for each tensor, where torch's Python code takes most of the remaining time. Gathers and scatters have the
manager only. Tensors are float32, each in memory of its own.
"""
from . import torch_timing

KEY = "coalesced"
KI = 1 << 10
# A case is the number of tensors, the bytes that each rank has of each tensor, and the call.
SUMS = ((100, 256), (100, KI), (256, 4 * KI), (64, 32 * KI))
CASES = [(*case, way) for case in SUMS for way in ("list", "manager")] + [(100, KI, "gather"), (100, KI, "scatter")]
NAMES = {"list": "all_reduce_coalesced", "manager": "all_reduce", "gather": "all_gather_into_tensor",
         "scatter": "reduce_scatter_tensor"}
# The goal for the ratio: tutti's time divided by gloo's, at most.
GOAL = 0.5


def call_of(dist, torch, group, number, nbytes, way):
    """Returns a function that exchanges all tensors once."""
    small = [torch.zeros(nbytes // 4) for _ in range(number)]
    large = [torch.zeros(nbytes // 4 * dist.get_world_size()) for _ in range(number if way != "list" else 0)]
    if way == "list":
        return lambda: dist.all_reduce_coalesced(small, group=group)
    each = {"manager": lambda part, whole: dist.all_reduce(part, group=group),
            "gather": lambda part, whole: dist.all_gather_into_tensor(whole, part, group=group),
            "scatter": lambda part, whole: dist.reduce_scatter_tensor(part, whole, group=group)}[way]

    def managed():
        with dist._coalescing_manager(group=group):
            for part, whole in zip(small, large):
                each(part, whole)
    return managed


def compare(dist, torch, groups, case, rounds, timing):
    number, nbytes, way = case
    return {KEY: number, "bytes": nbytes, "way": way,
            **timing.in_turns(groups, lambda group: call_of(dist, torch, group, *case), rounds)}


def row_of(found):
    return torch_timing.with_ratios(found, GOAL)


def headings(ranks):
    return (f"\nMany float32 tensors in one coalesced call, {ranks} ranks, µs.\n\n"
            "| tensors | bytes of each | call | tutti | gloo | ratio | least–most | goal |\n"
            "|--:|--:|---|--:|--:|--:|---|---|")


def line(row):
    return f"| {row[KEY]} | {row['bytes']} | {NAMES[row['way']]} | {torch_timing.cells(row)}"
