"""Saves or restores a state of arrays and shards: checkpoints.py save|load FILE. Run by tutti-run."""
import sys

import numpy as np

import tutti
from expect import raises
from tutti.checkpoint import Shard

ROWS, COLUMNS = 7, 3
comm = tutti.init()
whole = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
each = -(-ROWS // comm.size)
first = min(comm.rank * each, ROWS)
mine = whole[first:first + each]


def wanted():
    return {"weight": np.linspace(0, 1, 12).reshape(3, 4), "half": np.arange(4, dtype=np.float16),
            "steps": np.array(41), "device_0/mask": np.array([True, False, True])}


def save(path):
    frozen = wanted()
    frozen["weight"].setflags(write=False)
    tutti.checkpoint.save(path, {**frozen, "rows": Shard(mine, first, ROWS)}, comm, texts={"epoch": "3"})
    error = raises(tutti.InvalidError, ["rows"], tutti.checkpoint.save, path,
                   {"rows": Shard(mine[:-1] if comm.rank == 0 else mine, first, ROWS)}, comm)
    assert error.operation == "save", error
    raises(tutti.SystemFailureError, ["nowhere"], tutti.checkpoint.save, path + "/nowhere/x", wanted(), comm)
    for state, texts in ({"a\0b": np.zeros(2)}, {}), ({"a": np.zeros(2)}, {"k": "x\0y"}):
        raises(ValueError, ["\\x00", "NUL"], tutti.checkpoint.save, path, state, comm, texts=texts)
    raises(tutti.InvalidError, ["entry 'a\\x0ab'", "control character"], tutti.checkpoint.save, path,
           {"a\nb": np.zeros(2)}, comm)
    raises(TypeError, ["z: "], tutti.checkpoint.save, path, {"z": np.zeros(2, np.complex64)}, comm)


def load(path):
    state = {name: np.zeros_like(value) for name, value in wanted().items()}
    part = np.zeros_like(mine)
    loaded = tutti.checkpoint.load(path, {**state, "rows": Shard(part, first, ROWS)}, comm)
    for name, value in wanted().items():
        assert np.array_equal(state[name], value), (name, state[name])
    assert np.array_equal(part, mine), part
    assert loaded.text("epoch") == "3" and loaded.text("nothing") is None and loaded.missing == []
    raises(tutti.InvalidError, ["new"], tutti.checkpoint.load, path, {"new": np.zeros(2)}, comm, allow_extra=True)
    kept = {"new": np.full(2, 5.0), "steps": np.zeros((), np.int64)}
    raises(tutti.InvalidError, ["allow extra"], tutti.checkpoint.load, path, kept, comm, allow_missing=True)
    loaded = tutti.checkpoint.load(path, kept, comm, allow_missing=True, allow_extra=True)
    assert loaded.missing == ["new"] and kept["new"].tolist() == [5.0, 5.0] and kept["steps"] == 41
    raises(tutti.InvalidError, ["weight"], tutti.checkpoint.load, path, {"weight": np.zeros((4, 3))}, comm,
           allow_extra=True)
    frozen = np.zeros((3, 4))
    frozen.setflags(write=False)
    raises(TypeError, ["load: weight is read-only"], tutti.checkpoint.load, path, {"weight": frozen}, comm)
    raises(TypeError, ["load: weight is a numpy array with strides (64, 8)"], tutti.checkpoint.load, path,
           {"weight": np.zeros((6, 4))[::2]}, comm)
    for odd in range(comm.size):  # a rank that took another branch
        function = tutti.checkpoint.save if comm.rank == odd else tutti.checkpoint.load
        error = raises(tutti.MismatchError, ["'checkpoint save'", "'checkpoint load'"], function, path, state, comm)
        assert error.operation in ("save", "load"), error
    raises(tutti.MismatchError, ["'evaluate'", "'train'"], comm.barrier, "evaluate" if comm.rank == 0 else "train")
    comm.barrier("epoch 3")
    raises(tutti.InvalidError, ["'epoch-3'", "15 letters, digits and blanks"], comm.barrier, "epoch-3")
    if comm.rank == 0:  # a process by itself
        alone = np.zeros((ROWS, COLUMNS), np.float32)
        tutti.checkpoint.load(path, {"rows": alone}, allow_extra=True)
        assert np.array_equal(alone, whole)


{"save": save, "load": load}[sys.argv[1]](sys.argv[2])
comm.barrier()
if comm.rank == 0:
    print("CHECKPOINT ok", flush=True)
comm.close()
