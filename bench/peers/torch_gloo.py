"""Compares tutti and gloo as backends of torch.distributed: one process group of each, alternating blocks.

usage: bench/compare --torch [--python FILE] [--ranks 2] [--sizes 8,64K,…] [--rounds 5] [--ddp] [--coalesced] [--dtensor]
                             [--clients [LIST]] [--json FILE] [--strict]
       bench/compare --clients [LIST] [--python FILE] [--rounds 5] [--json FILE] [--strict]

Needs a Python with torch and the package tutti (tools/setup-python makes one). TUTTI_TRANSPORT=tcp compares TCP with
gloo's. The ratio is the median of the rounds' ratios, tutti's time ÷ gloo's, on rank 0.

--clients trains with programs of other projects (docs/how-to/clients.md), a run over each backend in a round. It needs
a Python with these projects (tools/setup-clients makes one), and about half a minute for a program's round.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from peers import torch_clients, torch_coalesced, torch_ddp, torch_dtensor, torch_single, torch_timing  # noqa: E402
from peers.running import bytes_of, free_port, machine, python_of, result_file  # noqa: E402

OVERHEAD_GOAL_US = 3.0
# Parts beside single tensors, by their option.
PARTS = {"ddp": torch_ddp, "coalesced": torch_coalesced, "dtensor": torch_dtensor}
# The name of each part in the JSON.
IN_JSON = {"rows": torch_single, "steps": torch_ddp, "lists": torch_coalesced, "dtensors": torch_dtensor}


def sizes(text):
    try:
        return [bytes_of(word) for word in text.split(",") if word]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def clients(text):
    names = [name for name in text.split(",") if name]
    wrong = [name for name in names if name not in torch_clients.NAMES]
    if wrong or not names:
        raise argparse.ArgumentTypeError(f"unknown client '{','.join(wrong)}'. What to do: give a list of: "
                                         f"{', '.join(torch_clients.NAMES)}")
    return names


def arguments():
    parser = argparse.ArgumentParser(prog="bench/compare", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", action="store_true", help="measure calls and steps in the same processes")
    parser.add_argument("--python", default=None, metavar="FILE",
                        help="Python with torch (those of build/python-env and build/clients-env, else the one that runs "
                             "this)")
    parser.add_argument("--ranks", type=int, default=2, metavar="N", help="number of ranks (2, for which the goals are set)")
    parser.add_argument("--sizes", default=torch_single.SIZES, type=sizes, metavar="LIST",
                        help="bytes of single tensors, '' for none (8,64K,1M,16M,128M)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds of each size (5)")
    parser.add_argument("--ddp", action="store_true", help="also measure the steps of a network with both backends")
    parser.add_argument("--coalesced", action="store_true", help="also measure many small tensors in one call")
    parser.add_argument("--dtensor", action="store_true", help="also measure operations and steps of DTensors")
    parser.add_argument("--clients", nargs="?", type=clients, const=torch_clients.NAMES, default=(), metavar="LIST",
                        help=f"measure programs of other projects ({','.join(torch_clients.NAMES)})")
    parser.add_argument("--json", type=result_file, metavar="FILE", help="also write every round to this file")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a goal is missed, or a client fails over tutti")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"--rounds is {args.rounds}. What to do: give 1 or more")
    return args


# ---- the ranks


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
        return min(torch_timing.timed(lambda: dist.all_reduce(tensor, group=group), 3000) for _ in range(5))

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
    timing = torch_timing.Timing(dist, torch)
    asked = [(torch_single, torch_single.cases(args.sizes)),
             *((part, part.CASES) for option, part in PARTS.items() if getattr(args, option))]
    for part, cases in asked:
        for case in cases:
            tell(json.dumps(part.compare(dist, torch, groups, case, args.rounds, timing)), flush=True)
    tell(json.dumps(overhead(dist, torch)), flush=True)


# ---- the table


def start_ranks(args):
    port = str(free_port())
    command = [python_of("python-env", args.python), __file__, "--rounds", str(args.rounds), "--sizes",
               ",".join(str(size) for size in args.sizes), *(f"--{name}" for name in PARTS if getattr(args, name))]
    return [subprocess.Popen(command, text=True, stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                             env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(args.ranks),
                                  "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TUTTI_COMPARE_RANK": "1",
                                  "OMP_NUM_THREADS": "1"})
            for rank in range(args.ranks)]


def show_overhead(found):
    above = found["tutti_alone_us"] - found["dispatch_us"]
    print(f"\nA call in a group of one rank: {found['tutti_alone_us']:.2f} µs; torch's own dispatch of it: "
          f"{found['dispatch_us']:.2f} µs; above that {above:.2f} µs (goal ≤ {OVERHEAD_GOAL_US:g}). Torch's own flight "
          f"recorder (TORCH_FR_BUFFER_SIZE) adds {found['recorder_us']:.2f} µs", flush=True)
    return above > OVERHEAD_GOAL_US


def measure_calls(args):
    """Prints a table for each part; returns (the report, whether a goal is missed)."""
    ranks = start_ranks(args)
    report, missed = {"transport": torch_single.transport(), **{name: [] for name in IN_JSON}}, False
    for text in ranks[0].stdout:
        if not text.startswith("{"):
            continue
        found = json.loads(text)
        if "torch" in found:
            report["versions"] = found
            print(f"tutti {found['tutti']} and gloo in torch {found['torch']}, {args.ranks} ranks, "
                  f"{report['transport']}, {args.rounds} alternating rounds.", flush=True)
            continue
        if "dispatch_us" in found:
            report.update(found)
            missed = show_overhead(found) or missed
            continue
        name, part = next((name, part) for name, part in IN_JSON.items() if part.KEY in found)
        row = part.row_of(found)
        if not report[name]:
            print(part.headings(args.ranks))
        print(part.line(row), flush=True)
        report[name].append(row)
        missed = missed or row["missed"]
    if any(process.wait() != 0 for process in ranks) or not any(report[name] for name in IN_JSON):
        sys.exit("compare: a rank of torch failed. What to do: read its output above, and give --python one with torch and "
                 "tutti")
    return report, missed


def main():
    args = arguments()
    if "TUTTI_COMPARE_RANK" in os.environ:
        be_a_rank(args)
        return
    report, missed = measure_calls(args) if args.torch else ({}, False)
    if args.clients:
        rows, skipped, missed_by_clients = torch_clients.measure(args.clients, args.python, args.rounds)
        report.update(machine=machine(), clients=rows, skipped=skipped)
        missed = missed or missed_by_clients
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if args.clients and not report["clients"]:
        sys.exit("compare: no client was compared. What to do: read the skipped lines above")
    if missed and args.strict:
        sys.exit(1)


if __name__ == "__main__":
    main()
