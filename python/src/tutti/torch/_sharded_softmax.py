"""A classifier whose classes are spread over the ranks: fully-connected layer and softmax cross-entropy in one."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from .._errors import with_advice


def shard_range(classes: int, shards: int, shard: int) -> tuple[int, int]:
    """(first class, number of classes) of a shard: (classes + shards - 1) // shards, the last shards fewer or none."""
    each = -(-classes // shards)
    first = min(shard * each, classes)
    return first, min(each, classes - first)


class _Layer:
    """The layer's group, options and shard, which forward and backward use."""

    def __init__(self, group, classes, ignore, scale):
        self.group, self.classes, self.ignore, self.scale = group, classes, ignore, scale
        self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.first, self.rows = shard_range(classes, self.size, self.rank)


def _gathered(tensor, counts, layer):
    """All ranks' rows, one rank after the other; their numbers may differ."""
    whole = tensor.new_empty((sum(counts), *tensor.shape[1:]))
    dist.all_gather(list(whole.split(counts)), tensor.contiguous(), group=layer.group)
    return whole


def _counting(labels, counts, layer):
    """A mask of the labels that count. Every rank has every label, so all raise the same error."""
    wrong = ((labels < 0) | (labels >= layer.classes)) & (labels != layer.ignore)
    if wrong.any():
        place = int(wrong.nonzero()[0])
        owner = next(r for r in range(layer.size) if place < sum(counts[:r + 1]))
        raise ValueError(with_advice(f"a label of rank {owner} is {int(labels[place])}, out of range",
                                     f"pass labels from 0 to {layer.classes - 1}, or {layer.ignore} to ignore a "
                                     "sample"))
    return labels != layer.ignore


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, labels, weight, bias, layer):
        # One exchange gives each rank's number of samples and whether it wants their gradient.
        told = torch.empty(layer.size, 2, dtype=torch.int64)
        dist.all_gather_into_tensor(told, torch.tensor([[len(x), int(ctx.needs_input_grad[0])]]), group=layer.group)
        counts = told[:, 0].tolist()
        everyone = _gathered(x, counts, layer)
        labels = _gathered(labels, counts, layer)
        valid = _counting(labels, counts, layer)
        logits = torch.nn.functional.linear(everyone, weight, bias)
        own = (valid & (labels >= layer.first) & (labels < layer.first + layer.rows)).nonzero().squeeze(1)
        places = labels[own] - layer.first
        largest = logits.amax(1) if layer.rows else logits.new_full((len(labels),), float("-inf"))
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=layer.group)
        logits -= largest.unsqueeze(1)
        sums = torch.zeros(2, len(labels), dtype=torch.float64)
        sums[1, own] = logits[own, places].double()
        exponentials = logits.exp_()
        sums[0] = exponentials.sum(1, dtype=torch.float64)
        dist.all_reduce(sums, group=layer.group)
        number = int(valid.sum())
        loss = (sums[0].log() - sums[1])[valid].sum() / max(number, 1)
        softmax = exponentials.mul_((1 / sums[0]).to(logits.dtype).unsqueeze(1))
        softmax[~valid] = 0
        ctx.save_for_backward(everyone, weight, softmax, own, places)
        ctx.layer, ctx.counts, ctx.number = layer, counts, max(number, 1)
        ctx.with_dx, ctx.has_bias = bool(told[:, 1].any()), bias is not None
        return loss.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, dloss):
        with torch.autocast(dloss.device.type, enabled=False):
            return _CrossEntropy.gradients(ctx, dloss)

    @staticmethod
    def gradients(ctx, dloss):
        everyone, weight, softmax, own, places = ctx.saved_tensors
        layer = ctx.layer
        gradient = softmax.clone()
        gradient[own, places] -= 1
        gradient *= dloss / ctx.number
        dx = None
        if ctx.with_dx:
            parts = list((gradient @ weight).split(ctx.counts))
            dx = torch.empty_like(parts[layer.rank])
            dist.reduce_scatter(dx, parts, group=layer.group)
            dx *= layer.scale
        return (dx if ctx.needs_input_grad[0] else None, None, gradient.t() @ everyone,
                gradient.sum(0) if ctx.has_bias else None, None)


class ShardedSoftmax(torch.nn.Module):
    """Softmax cross-entropy over a fully-connected layer, for more classes than one rank should hold.

        head = tutti.torch.ShardedSoftmax(128, 1_000_000)
        loss = head(features, labels)       # features (N, 128), labels (N,) of this rank's samples
        loss.backward()

    Rank r of n has the weights of (classes + n - 1) // n classes, from ``first`` on: weight (rows, in_features), bias
    (rows,). loss is the mean over all ranks' samples, the same bits on every rank, and it and its gradients are those
    of the unsharded layer over the joined batch: weight.grad and bias.grad are complete for the shard and not to be
    reduced, features.grad is complete for this rank's samples. N may differ between ranks and be 0.

    Forward and backward are collective, in one order on all ranks. The ranks exchange features and a few numbers per
    sample; the traffic does not grow with the number of classes.

    All of it is computed in the weight's type, also under torch.autocast.

    label ignore_index: a sample that does not count. input_gradient_scale multiplies features.grad: set it to the size
    of the group if the features come from a DistributedDataParallel, which divides by the size. If the head is part of
    such a model, exclude it from the model's reduction.
    """

    def __init__(self, in_features: int, classes: int, bias: bool = True, group=None, ignore_index: int = -100,
                 input_gradient_scale: float = 1.0, dtype=None):
        super().__init__()
        if in_features < 1 or classes < 1:
            raise ValueError(with_advice(f"ShardedSoftmax: in_features is {in_features} and classes is {classes}",
                                         "pass 1 or more of both"))
        self.in_features, self.classes = in_features, classes
        self._layer = _Layer(group, classes, ignore_index, input_gradient_scale)
        self.first, self.rows = self._layer.first, self._layer.rows
        self.weight = torch.nn.Parameter(torch.empty(self.rows, in_features, dtype=dtype))
        self.bias = torch.nn.Parameter(torch.empty(self.rows, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As torch.nn.Linear; ranks with one seed get different numbers."""
        base = int(torch.randint(2**62, ()))
        generator = torch.Generator().manual_seed(base + self._layer.rank)
        bound = self.in_features ** -0.5
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.uniform_(-bound, bound, generator=generator)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.classes}, classes {self.first} to {self.first + self.rows - 1} here"

    def forward(self, x, labels):
        """x: (N, in_features); labels: (N,) of int64. Returns the loss, without dimensions."""
        if x.dim() != 2 or x.shape[1] != self.in_features or labels.shape != x.shape[:1]:
            raise ValueError(with_advice(f"ShardedSoftmax expected features (N, {self.in_features}) and labels (N,), "
                                         f"got {tuple(x.shape)} and {tuple(labels.shape)}",
                                         "pass one row of features and one label for each sample"))
        with torch.autocast(x.device.type, enabled=False):
            return _CrossEntropy.apply(x.to(self.weight.dtype), labels.to(torch.int64), self.weight, self.bias,
                                       self._layer)
