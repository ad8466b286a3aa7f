"""The flight recorder in the format of torch's own recorder, which torch.distributed.flight_recorder.fr_trace reads."""

from __future__ import annotations

import json
import os
import pickle
import re
import tempfile
import time
from typing import NamedTuple

import torch
import torch.distributed as dist

from .._errors import with_advice
from . import TORCH

#: The format's version in torch 2.9 to 2.15. The analyser refuses a folder whose files have different versions.
VERSION = "2.10"

DTYPES = {"float16": "Half", "bfloat16": "BFloat16", "float32": "Float", "float64": "Double", "int8": "Char",
          "uint8": "Byte", "int16": "Short", "uint16": "UInt16", "int32": "Int", "uint32": "UInt32", "int64": "Long",
          "uint64": "UInt64", "float8_e4m3": "Float8_e4m3fn", "float8_e5m2": "Float8_e5m2"}

# The content of a buffer: nothing, `count` elements, a block of them for each rank, the same at the root only, or a
# number of elements that the recorder does not have.
NOTHING, COUNT, BLOCKS, AT_ROOT, UNKNOWN = range(5)


class Place(NamedTuple):
    """A group, and this rank in it."""
    name: str
    desc: str
    rank: int
    ranks: list[int]  # each member's rank in the job


def _library(version):
    """The library in an entry's name. The analyser refuses "tutti" before torch 2.15, and warns of each entry since."""
    return "c10d" if version >= (2, 15) else "gloo" if version >= (2, 12) else "nccl"


def _kinds(version):
    """By collective: the name of its entries, and the content of its input and output."""
    kinds = {"allreduce": ("all_reduce", COUNT, COUNT),
             "broadcast": ("broadcast", COUNT, COUNT),
             "reduce": ("reduce", COUNT, COUNT),
             "barrier": ("barrier" if version >= (2, 12) else "all_reduce_barrier", NOTHING, NOTHING),
             "allgather": ("_all_gather_base", COUNT, BLOCKS),
             "reduce_scatter": ("_reduce_scatter_base", BLOCKS, COUNT),
             "gather": ("gather", COUNT, AT_ROOT),
             "gatherv": ("gather", COUNT, AT_ROOT),
             "scatter": ("scatter", AT_ROOT, COUNT),
             "scatterv": ("scatter", AT_ROOT, COUNT),
             "alltoall": ("all_to_all", BLOCKS, BLOCKS),
             "alltoallv": ("all_to_all", BLOCKS, BLOCKS)}
    if version >= (2, 12):  # their count is that of all blocks together
        kinds["allgatherv"] = ("all_gather_v", UNKNOWN, COUNT)
        kinds["reduce_scatterv"] = ("reduce_scatter_v", COUNT, UNKNOWN)
    return {call: (f"{_library(version)}:{name}", reads, writes) for call, (name, reads, writes) in kinds.items()}


def _sizes(content, call, place):
    """A buffer's shape on this rank, in a list as torch has it. An unknown number of elements is an empty shape."""
    if content == NOTHING or content == AT_ROOT and call["root"] != place.rank:
        return []
    if content == UNKNOWN or "count" not in call:
        return [[]]
    return [[call["count"] if content == COUNT else call["count"] * len(place.ranks)]]


def _entry(call, kind, place, clock_ns):
    name, reads, writes = kind
    inputs, outputs = _sizes(reads, call, place), _sizes(writes, call, place)
    dtype = DTYPES.get(call.get("dtype"), "undefined")
    number, done = call["number"], call["state"] == "done"
    return {
        # Ranks count alike, so the analyser compares the same calls. It takes entries with one number for one call.
        "record_id": number, "collective_seq_id": number, "op_id": number, "p2p_seq_id": 0, "is_p2p": False,
        "pg_id": 0, "process_group": (place.name, place.desc), "profiling_name": name,
        "input_sizes": inputs, "input_dtypes": [dtype] * len(inputs),
        "output_sizes": outputs, "output_dtypes": [dtype] * len(outputs),
        # Torch has no state for a failure: such a call was started and is retired.
        "state": "completed" if done else "started", "retired": call["state"] != "running",
        "time_created_ns": clock_ns + call["start_ns"],
        "time_discovered_started_ns": clock_ns + call["start_ns"],
        "time_discovered_completed_ns": clock_ns + call["end_ns"] if done else None,
        "duration_ms": (call["end_ns"] - call["start_ns"]) / 1e6 if done else None,
        "frames": [],
    }


def entries(calls, place, version=TORCH):
    """The recorder's calls in torch's form, without kinds that the analyser has no name for: it refuses their file."""
    kinds = _kinds(version)
    clock_ns = time.time_ns() - time.monotonic_ns()  # the begin of the recorder's clock, in the time of day
    return [_entry(call, kinds[call["collective"]], place, clock_ns) for call in calls if call["collective"] in kinds]


def _status(calls):
    last = calls[-1]["number"] if calls else -1
    return {"last_enqueued_collective": last, "last_started_collective": last,
            "last_completed_collective": max((call["number"] for call in calls if call["state"] == "done"), default=-1)}


def write(path, group, dump, library) -> None:
    """Writes this rank's file. dump(fd) writes the recorder's lines; library names and versions the library."""
    prefix = os.fsdecode(path)
    name = os.path.basename(prefix)
    if not re.fullmatch(r"(?s)(.*([^\W\d]|-))?", name):
        raise ValueError(with_advice("dump: torch's analyser takes the digits at the end of a file's name for the "
                                     f"rank, but it cannot tell them from {name!r}",
                                     f"end the path in a letter, '_' or '-', for example {name + '_'!r}"))
    with tempfile.TemporaryFile(buffering=0) as file:
        dump(file.fileno())
        file.seek(0)
        calls = [json.loads(line) for line in file.read().splitlines()]
    ranks = dist.get_process_group_ranks(group)
    place = Place(group.group_name, group.group_desc, dist.get_rank(group), ranks)
    trace = {"version": VERSION, "comm_lib_version": library,
             "pg_config": {place.name: {"name": place.name, "desc": place.desc, "ranks": str(ranks)}},
             "pg_status": {"0": _status(calls)}, "entries": entries(calls, place)}
    content = pickle.dumps(trace)
    with open(f"{prefix}{ranks[place.rank]}", "wb") as file:
        file.write(content)
