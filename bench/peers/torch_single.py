"""Times all_reduce of single tensors, with tutti and gloo in turns."""
import os

from . import torch_timing
from .running import KI, MI, human

KEY = "dtype"
SIZES = (8, 64 * KI, MI, 16 * MI, 128 * MI)
# The goals for the ratio of two ranks by type and bytes: tutti's time divided by gloo's, at most.
GOALS = {"shm": {("float32", 8): 1 / 20, ("float32", 64 * KI): 1 / 12, ("float32", MI): 1 / 5,
                 ("float32", 16 * MI): 1 / 6, ("float32", 128 * MI): 1 / 6, ("bfloat16", 16 * MI): 1 / 10},
         "tcp": {("float32", 16 * MI): 0.6}}
TCP_GOAL = 1.0


def transport():
    return "tcp" if os.environ.get("TUTTI_TRANSPORT") == "tcp" else "shm"


def cases(sizes):
    return [("float32", nbytes) for nbytes in sizes] + [("bfloat16", nbytes) for nbytes in sizes if nbytes == 16 * MI]


def compare(dist, torch, groups, case, rounds, timing):
    dtype, nbytes = case
    kind = getattr(torch, dtype)
    tensor = torch.zeros(nbytes // kind.itemsize, dtype=kind)
    return {KEY: dtype, "bytes": nbytes, "ranks": dist.get_world_size(),
            **timing.in_turns(groups, lambda group: lambda: dist.all_reduce(tensor, group=group), rounds)}


def goal_of(found):
    if found["ranks"] != 2:
        return None
    return GOALS[transport()].get((found[KEY], found["bytes"]), TCP_GOAL if transport() == "tcp" else None)


def row_of(found):
    return torch_timing.with_ratios(found, goal_of(found))


def headings(_):
    return "\n| type | size | tutti, µs | gloo, µs | ratio | least–most | goal |\n|---|--:|--:|--:|--:|---|---|"


def line(row):
    return f"| {row[KEY]} | {human(row['bytes'])} | {torch_timing.cells(row)}"
