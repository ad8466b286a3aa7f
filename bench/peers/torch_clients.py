"""Times training steps of other projects' programs (test/clients) over gloo and over tutti, in turns.

A block is one run of a program with two ranks, and its result the median of the run's steps. The programs and the way
to start them are those of the tests, so the environment is that of tools/setup-clients.
"""
import os
import pathlib
import signal
import statistics
import subprocess
import sys

from . import torch_timing
from .running import python_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
# In the order of test/clients/runs.py, which this module cannot import before the environment is known.
NAMES = ("ddp", "fsdp2", "lightning", "accelerate", "accelerate-launch", "transformers", "deepspeed", "ray",
         "ray-collective", "torchft", "lightgbm")
# The goal for the ratio: tutti's time divided by gloo's, at most.
GOAL = 1.0


def start(python):
    """Returns test/clients' module runs for that Python, and compiles the backend, for which no step is to wait."""
    os.environ["TUTTI_TEST_PYTHON"] = os.path.abspath(python)  # not resolved: that of an environment is a link
    os.environ.setdefault("TUTTI_CACHE_DIR", str(ROOT / "build" / "python-env" / "backends"))  # as for the tests
    sys.path.insert(0, str(ROOT / "test" / "clients"))
    import runs

    done = subprocess.run([python, "-m", "tutti.torch"], capture_output=True, text=True, check=False,
                          env=runs.environment(PYTHONPATH=""), stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        last = (done.stderr.strip() or "no output").splitlines()[-1]
        sys.exit(f"compare: tutti's backend cannot be loaded by {python}: {last}. What to do: run tools/setup-python "
                 "build/python-env and tools/setup-clients build/clients-env, or give --python one with torch and tutti")
    return runs


class FailedOverTutti(RuntimeError):
    """A run over tutti failed."""


def compare(runs, name, rounds):
    """One client's times in milliseconds. RuntimeError: its package is not there, or a run failed."""
    client = runs.CLIENTS[name]
    version = client.version()
    if version is None:
        raise RuntimeError(f"{client.package} is not installed. What to do: run tools/setup-clients build/clients-env, "
                           "or give --python one with it")
    backends = client.over
    # The tests' environment has no other setting of tutti's.
    settings = {key: os.environ[key] for key in ("TUTTI_TRANSPORT",) if key in os.environ}
    times = {backend: [] for backend in backends}
    for index in range(rounds):
        for backend in backends if index % 2 == 0 else reversed(backends):
            done = runs.run(client.command, **{**backends[backend], **settings})
            if done.status != 0:
                last = next((line for line in reversed(done.log.splitlines()) if line.strip()), "no output")
                kind = FailedOverTutti if backend == "tutti" else RuntimeError
                network = "tutti" if backend == "tutti" else client.beside
                raise kind(f"over {network}: exit status {done.status}: {last}. What to do: run the suite clients, whose "
                           "tests show the whole output")
            times[backend].append(done.step_ms())
    return {"client": name, "title": f"{client.title} {version}", **{f"{key}_ms": ms for key, ms in times.items()}}


def row_of(found):
    return torch_timing.with_ratios(found, GOAL, "_ms")


HEADINGS = ("\nTraining programs of other projects, 2 ranks, a step in ms. LightGBM has its own sockets in place of "
            "gloo.\n\n"
            "| program | tutti | gloo | ratio | least–most | goal |\n|--|--:|--:|--:|--|--|")


def line(row):
    """The row of docs/how-to/clients.md, too."""
    ours, theirs = (statistics.median(row[f"{name}_ms"]) for name in ("tutti", "gloo"))
    return (f"| {row['title']} | {ours:.2f} | {theirs:.2f} | {row['ratio']:.2f} | {min(row['ratios']):.2f}–"
            f"{max(row['ratios']):.2f} | ≤ {row['goal']:g}{' (missed)' if row['missed'] else ''} |")


def measure(names, python, rounds):
    """Prints the table; returns (the rows, {client: the reason why it is left out}, whether a goal is missed).

    A client that fails over tutti misses its goal.
    """
    # SystemExit reaches the `finally` of runs.run(), which ends all that a program has started.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _: sys.exit(128 + got))
    runs = start(python_of("clients-env", python))
    print(HEADINGS, flush=True)
    rows, skipped, missed = [], {}, False
    for name in names:
        try:
            rows.append(row_of(compare(runs, name, rounds)))
            missed = missed or rows[-1]["missed"]
            print(line(rows[-1]), flush=True)
        except RuntimeError as why:
            skipped[name] = str(why)
            missed = missed or isinstance(why, FailedOverTutti)
    print()
    for name, why in skipped.items():
        print(f"skipped: {name}: {why}")
    return rows, skipped, missed
