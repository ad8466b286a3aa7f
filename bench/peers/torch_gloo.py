"""Compares tutti and gloo as backends of torch.distributed: one process group of each, alternating blocks.

usage: bench/compare --torch [--python FILE] [--ranks 2] [--sizes 8,64K,…] [--rounds 5] [--ddp] [--coalesced]
                             [--json FILE] [--strict]

Needs a Python with torch and the package tutti (tools/setup-python makes one). TUTTI_TRANSPORT=tcp compares TCP with
gloo's. The ratio is the median of the rounds' ratios, tutti's time ÷ gloo's, on rank 0.
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from peers import torch_coalesced, torch_ddp  # noqa: E402
from peers.running import result_file  # noqa: E402

KI, MI = 1 << 10, 1 << 20
BLOCK_S = 0.15
SIZES = (8, 64 * KI, MI, 16 * MI, 128 * MI)
# The goals for the ratio by type and bytes: tutti's time divided by gloo's, at most.
GOALS = {"shm": {("float32", 8): 1 / 20, ("float32", 64 * KI): 1 / 12, ("float32", MI): 1 / 5,
                 ("float32", 16 * MI): 1 / 6, ("float32", 128 * MI): 1 / 6, ("bfloat16", 16 * MI): 1 / 10},
         "tcp": {("float32", 16 * MI): 0.6}}
TCP_GOAL = 1.0
OVERHEAD_GOAL_US = 3.0


def size_of(text):
    units = {"K": KI, "M": MI}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def arguments():
    parser = argparse.ArgumentParser(prog="bench/compare --torch", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=None, metavar="FILE",
                        help="Python with torch (that of build/python-env, else the one that runs this)")
    parser.add_argument("--ranks", type=int, default=2, help="number of ranks (2, for which the goals are set)")
    parser.add_argument("--sizes", default=SIZES,
                        type=lambda text: [size_of(word) for word in text.split(",") if word],
                        help="bytes of single tensors, '' for none (8,64K,1M,16M,128M)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each size (5)")
    parser.add_argument("--ddp", action="store_true", help="also measure the steps of a network with both backends")
    parser.add_argument("--coalesced", action="store_true", help="also measure many small tensors in one call")
    parser.add_argument("--json", type=result_file, metavar="FILE", help="also write every round to this file")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a goal is missed")
    return parser.parse_args()


# ---- the ranks


def timed(function, iterations):
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


def compare(dist, torch, groups, dtype, nbytes, rounds, timing):
    tensor = torch.zeros(nbytes // dtype.itemsize, dtype=dtype)

    def call_of(group):
        return lambda: dist.all_reduce(tensor, group=group)
    counts = {name: timing.iterations_for(group, call_of(group)) for name, group in groups.items()}
    times = {name: [] for name in groups}
    for _ in range(rounds):
        for name, group in groups.items():
            times[name].append(timing.measure(group, call_of(group), counts[name]))
    return {"dtype": str(dtype).removeprefix("torch."), "bytes": nbytes, **times}


def overhead(dist, torch):
    """Times a call in a group of this rank alone, and with a backend that does nothing. Both include torch's dispatch.

    Newer torch adds its flight recorder to every group except those of that backend: its time is a result of its own.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore

    tensor = torch.zeros(2)

    def alone():
        groups = [dist.new_group([rank], backend="tutti") for rank in range(dist.get_world_size())]
        return best(groups[dist.get_rank()])

    def best(group):
        return min(timed(lambda: dist.all_reduce(tensor, group=group), 3000) for _ in range(5))

    recorded = alone()
    os.environ["TORCH_FR_BUFFER_SIZE"] = "0"
    ours = alone()
    dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    return {"tutti_alone_us": ours, "recorder_us": recorded - ours, "dispatch_us": best(dist.group.WORLD)}


def be_a_rank(args):
    import torch
    import torch.distributed as dist

    import tutti.torch

    torch.set_num_threads(1)
    dist.init_process_group("tutti")
    groups = {"tutti": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    tell = print if dist.get_rank() == 0 else lambda *_, **__: None
    tell(json.dumps({"torch": torch.__version__, "tutti": tutti.torch.build().library_version()}), flush=True)
    cases = [(torch.float32, nbytes) for nbytes in args.sizes]
    if 16 * MI in args.sizes:
        cases.append((torch.bfloat16, 16 * MI))
    timing = Timing(dist, torch)
    for dtype, nbytes in cases:
        tell(json.dumps(compare(dist, torch, groups, dtype, nbytes, args.rounds, timing)), flush=True)
    for width in torch_ddp.WIDTHS if args.ddp else ():
        tell(json.dumps(torch_ddp.compare(dist, torch, groups, width, args.rounds)), flush=True)
    for case in torch_coalesced.CASES if args.coalesced else ():
        tell(json.dumps(torch_coalesced.compare(dist, torch, groups, case, args.rounds, timing)), flush=True)
    tell(json.dumps(overhead(dist, torch)), flush=True)


# ---- the table


def human(nbytes):
    for unit, size in (("MiB", MI), ("KiB", KI)):
        if nbytes >= size:
            return f"{nbytes // size} {unit}"
    return f"{nbytes} B"


def row_of(found, transport):
    ratios = [ours / theirs for ours, theirs in zip(found["tutti"], found["gloo"])]
    goal = GOALS.get(transport, {}).get((found["dtype"], found["bytes"]), TCP_GOAL if transport == "tcp" else None)
    return {**found, "ratio": statistics.median(ratios), "ratios": ratios, "goal": goal,
            "missed": goal is not None and statistics.median(ratios) > goal}


HEADINGS = "\n| type | size | tutti, µs | gloo, µs | ratio | least–most | goal |\n|---|--:|--:|--:|--:|---|---|"


def show(row):
    judged = "" if row["goal"] is None else f"≤ {row['goal']:.3g}{' (missed)' if row['missed'] else ''}"
    print(f"| {row['dtype']} | {human(row['bytes'])} | {statistics.median(row['tutti']):.4g} | "
          f"{statistics.median(row['gloo']):.4g} | {row['ratio']:.3f} | {min(row['ratios']):.3f}–{max(row['ratios']):.3f}"
          f" | {judged} |", flush=True)


def python_for(given):
    made = pathlib.Path(__file__).resolve().parents[2] / "build" / "python-env" / "bin" / "python"
    return given or (str(made) if os.access(made, os.X_OK) else sys.executable)


def main():
    args = arguments()
    if "TUTTI_COMPARE_RANK" in os.environ:
        be_a_rank(args)
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [python_for(args.python), __file__, "--rounds", str(args.rounds), "--sizes",
               ",".join(str(size) for size in args.sizes), *(["--ddp"] if args.ddp else []),
               *(["--coalesced"] if args.coalesced else [])]
    transport = "tcp" if os.environ.get("TUTTI_TRANSPORT") == "tcp" else "shm"
    ranks = [subprocess.Popen(command, text=True, stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                              env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(args.ranks),
                                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TUTTI_COMPARE_RANK": "1",
                                   "OMP_NUM_THREADS": "1"})
             for rank in range(args.ranks)]
    rows, steps, lists, versions, extra = [], [], [], {}, {}
    for line in ranks[0].stdout:
        if not line.startswith("{"):
            continue
        found = json.loads(line)
        if "torch" in found:
            versions = found
            print(f"tutti {found['tutti']} and gloo in torch {found['torch']}, {args.ranks} ranks, {transport}, "
                  f"{args.rounds} alternating rounds.")
        elif "dispatch_us" in found:
            extra = found
        elif "ddp_width" in found:
            if not steps:
                print(torch_ddp.HEADINGS)
            steps.append(torch_ddp.row_of(found))
            torch_ddp.show(steps[-1])
        elif "coalesced" in found:
            if not lists:
                print(torch_coalesced.headings(args.ranks))
            lists.append(torch_coalesced.row_of(found))
            torch_coalesced.show(lists[-1])
        else:
            if not rows:
                print(HEADINGS)
            rows.append(row_of(found, transport if args.ranks == 2 else None))
            show(rows[-1])
    if any(process.wait() != 0 for process in ranks) or not rows + steps + lists:
        sys.exit("compare: a rank of torch failed. What to do: read its output above, and give --python one with torch and "
                 "tutti")
    above = extra["tutti_alone_us"] - extra["dispatch_us"]
    print(f"\nA call in a group of one rank: {extra['tutti_alone_us']:.2f} µs; torch's own dispatch of it: "
          f"{extra['dispatch_us']:.2f} µs; above that {above:.2f} µs (goal ≤ {OVERHEAD_GOAL_US:g}). Torch's own flight "
          f"recorder (TORCH_FR_BUFFER_SIZE) adds {extra['recorder_us']:.2f} µs")
    if args.json:
        report = {"versions": versions, "transport": transport, "rows": rows, "steps": steps, "lists": lists, **extra}
        pathlib.Path(args.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if args.strict and (any(row["missed"] for row in rows + steps + lists) or above > OVERHEAD_GOAL_US):
        sys.exit(1)


if __name__ == "__main__":
    main()
