"""Times small operations and training steps of DTensors, with tutti and gloo in turns.

Each group has a device mesh of one dimension. The operations change how a tensor lies on the mesh. The steps train
layers in pairs: the first has its columns on different ranks, the second its rows, so that each pair sums its results
in the forward pass, and its gradients in the backward pass. Most of a step is torch's own work in Python, so each case
is also timed over a group that sends nothing.
"""
import statistics

from . import torch_timing

KEY = "dtensor"
KI = 1 << 10
ELEMENTS = 4 * KI
PAIRS, WIDTH, BATCH = 2, 64, 16
# The bytes of a whole tensor, and those of the parameters that a step trains.
TENSOR_BYTES = 4 * ELEMENTS
STEP_BYTES = 4 * PAIRS * (2 * 4 * WIDTH * WIDTH + 5 * WIDTH)
CASES = ("gather", "sum", "scatter the sum", "exchange", "step")
NAMES = {"gather": "Shard(0) to Replicate", "sum": "Partial to Replicate", "scatter the sum": "Partial to Shard(0)",
         "exchange": "Shard(0) to Shard(1)", "step": f"training step of {PAIRS} pairs of layers"}
# The goal for the ratio: tutti's time divided by gloo's, at most. It holds if torch's own work leaves room for it.
GOAL = 0.5


def step_of(torch, mesh):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(5)
    nn, layers, plan = torch.nn, [], {}
    for pair in range(PAIRS):
        layers += [nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH)]
        plan.update({str(3 * pair): ColwiseParallel(), str(3 * pair + 2): RowwiseParallel()})
    model = parallelize_module(nn.Sequential(*layers), mesh, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(BATCH, WIDTH, requires_grad=True)

    def step():
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    return step


def call_of(dist, torch, group, case):
    """Returns a function that makes the operation, or the step, once."""
    from torch.distributed.tensor import DeviceMesh, DTensor, Partial, Replicate, Shard

    mesh = DeviceMesh.from_group(group, "cpu")
    if case == "step":
        return step_of(torch, mesh)
    before, after = {"gather": (Shard(0), Replicate()), "sum": (Partial(), Replicate()),
                     "scatter the sum": (Partial(), Shard(0)), "exchange": (Shard(0), Shard(1))}[case]
    rows = 64 // dist.get_world_size() * dist.get_world_size()
    whole = torch.zeros(rows, ELEMENTS // 64)
    local = whole[:rows // dist.get_world_size()].clone() if before == Shard(0) else whole
    tensor = DTensor.from_local(local, mesh, [before], run_check=False)
    return lambda: tensor.redistribute(mesh, [after]).to_local()


def compare(dist, torch, groups, case, rounds, timing):
    from torch.testing._internal.distributed import fake_pg  # noqa: F401 (it registers the backend fake)

    groups = {**groups, "alone": dist.new_group(backend="fake")}
    return {KEY: case, "bytes": STEP_BYTES if case == "step" else TENSOR_BYTES,
            **timing.in_turns(groups, lambda group: call_of(dist, torch, group, case), rounds)}


def row_of(found):
    own = statistics.median(alone / theirs for alone, theirs in zip(found["alone"], found["gloo"]))
    return {**torch_timing.with_ratios(found, GOAL if own < GOAL else None), "own_share": own}


def headings(ranks):
    return (f"\nDTensors of {TENSOR_BYTES // KI} KiB, {ranks} ranks, µs; torch's share is that of its own work in gloo's time."
            "\n\n| operation | alone | torch's share | tutti | gloo | ratio | least–most | goal |\n"
            "|---|--:|--:|--:|--:|--:|---|---|")


def line(row):
    return (f"| {NAMES[row[KEY]]} | {statistics.median(row['alone']):.4g} | {100 * row['own_share']:.0f} % | "
            f"{torch_timing.cells(row)}")
