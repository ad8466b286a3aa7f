"""Times steps of a small convolutional network in DistributedDataParallel, with tutti and gloo in turns.

For each width of the hidden layer, whose gradients are most of the sent bytes, it measures a step with each backend,
and a step that sends nothing: this one shows the share of communication in gloo's step. DistributedDataParallel sends
gradients in buckets, of 25 MiB by default: small buckets are more calls, which overlap with the backward pass. Images
are random, and have the size of the digits' images (8 × 8).
"""
import statistics
import time

KEY = "ddp_width"
# A case is the width, and the KiB of a bucket or None for torch's own size.
CASES = ((64, None), (512, None), (2048, None), (512, 64), (2048, 256))
BATCH, CHANNELS, CLASSES = 24, 16, 10
BLOCK_STEPS = 20
# The goal for the steps per second, in multiples of gloo's. It holds if communication has this share of gloo's step.
GOAL, GOAL_SHARE = 1.3, 0.3


def network(torch, width):
    nn = torch.nn
    torch.manual_seed(5)
    return nn.Sequential(nn.Conv2d(1, CHANNELS, 3, padding=1), nn.ReLU(), nn.Conv2d(CHANNELS, CHANNELS, 3), nn.ReLU(),
                         nn.Flatten(), nn.Linear(CHANNELS * 36, width), nn.ReLU(), nn.Linear(width, CLASSES))


class Trainer:
    """A replica of the network and its optimizer. With group None it sends nothing."""

    def __init__(self, torch, width, bucket_kib, group):
        self.torch, self.model = torch, network(torch, width)
        self.bytes = sum(parameter.nbytes for parameter in self.model.parameters())
        if group is not None:
            self.model = torch.nn.parallel.DistributedDataParallel(
                self.model, process_group=group, bucket_cap_mb=bucket_kib and bucket_kib / 1024)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.images, self.labels = torch.randn(BATCH, 1, 8, 8), torch.arange(BATCH) % CLASSES

    def block_ms(self, dist):
        """The mean time of a step in a block, which all ranks begin together."""
        dist.barrier()
        began = time.perf_counter()
        for _ in range(BLOCK_STEPS):
            self.optimizer.zero_grad()
            self.torch.nn.functional.cross_entropy(self.model(self.images), self.labels).backward()
            self.optimizer.step()
        return (time.perf_counter() - began) / BLOCK_STEPS * 1000


def compare(dist, torch, groups, case, rounds, _):
    width, bucket_kib = case
    trainers = {name: Trainer(torch, width, bucket_kib, group) for name, group in {**groups, "alone": None}.items()}
    times = {name: [] for name in trainers}
    for trainer in trainers.values():
        trainer.block_ms(dist)
    for _ in range(rounds):
        for name, trainer in trainers.items():
            times[name].append(trainer.block_ms(dist))
    return {KEY: width, "bucket_kib": bucket_kib, "bytes": trainers["alone"].bytes,
            **{f"{name}_ms": ms for name, ms in times.items()}}


def row_of(found):
    speedups = [theirs / ours for ours, theirs in zip(found["tutti_ms"], found["gloo_ms"])]
    shares = [1 - alone / theirs for alone, theirs in zip(found["alone_ms"], found["gloo_ms"])]
    row = {**found, "speedup": statistics.median(speedups), "speedups": speedups, "share": statistics.median(shares)}
    row["goal"] = GOAL if row["share"] >= GOAL_SHARE else None
    row["missed"] = row["goal"] is not None and row["speedup"] < row["goal"]
    return row


def headings(ranks):
    return (f"\nSteps of a CNN in DistributedDataParallel, {ranks} ranks, ms; the share is communication's of gloo's step.\n\n"
            "| parameters | buckets | alone | tutti | gloo | share | tutti's steps/s ÷ gloo's | least–most | goal |\n"
            "|--:|--:|--:|--:|--:|--:|--:|---|---|")


def line(row):
    alone, ours, theirs = (statistics.median(row[f"{name}_ms"]) for name in ("alone", "tutti", "gloo"))
    buckets = f"{row['bucket_kib']} KiB" if row["bucket_kib"] else "torch's own"
    judged = "" if row["goal"] is None else f"≥ {row['goal']:g}{' (missed)' if row['missed'] else ''}"
    return (f"| {row['bytes'] / 1e6:.2f} MB | {buckets} | {alone:.2f} | {ours:.2f} | {theirs:.2f} | "
            f"{100 * row['share']:.0f} % | {row['speedup']:.2f} | {min(row['speedups']):.2f}–{max(row['speedups']):.2f} | "
            f"{judged} |")
