"""Batch-norm over the joined batch of all ranks, for tensors in host memory."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm, _LazyNormBase

from .._errors import with_advice


def _statistics(x):
    """(elements per channel, mean, sum of squared differences from the mean), in double, without cancellation."""
    count = x.numel() // x.shape[1]
    if count == 0:
        zeros = torch.zeros(x.shape[1], dtype=torch.float64)
        return 0, zeros, zeros
    wide = x if x.dtype == torch.float64 else x.float()
    variance, mean = torch.var_mean(wide, [d for d in range(x.dim()) if d != 1], correction=0)
    return count, mean.double(), variance.double() * count


def _joined(x, group):
    """The same for all ranks' x together. The ranks exchange 2 · channels + 1 doubles, for any batch."""
    count, mean, squares = _statistics(x)
    channels = x.shape[1]
    message = torch.empty(2 * channels + 1, dtype=torch.float64)
    message[:channels] = mean * count
    message[channels:-1] = squares + mean * mean * count
    message[-1] = count
    dist.all_reduce(message, group=group)
    total = int(message[-1])
    if total < 2:
        raise ValueError(with_advice("batch-norm in training needs more than one value per channel, but all "
                                     f"{dist.get_world_size(group)} ranks together have {total}",
                                     "use a larger batch, or call eval() on the layer"))
    mean = message[:channels] / total
    return total, mean, (message[channels:-1] / total - mean * mean).clamp_(min=0)


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, running, momentum, epsilon, group):
        total, mean, variance = _joined(x, group)
        if running is not None:
            for kept, new in zip(running, (mean, variance * (total / (total - 1)))):
                kept.mul_(1 - momentum).add_(new.to(kept.dtype), alpha=momentum)
        narrow = torch.float64 if x.dtype == torch.float64 else torch.float32
        mean, variance = mean.to(narrow), variance.to(narrow)
        inverse = torch.rsqrt(variance + epsilon)
        ctx.save_for_backward(x, weight, mean, inverse)
        ctx.group, ctx.total, ctx.has_bias = group, total, bias is not None
        if x.numel() == 0:
            return torch.empty_like(x)
        wide_weight, wide_bias = (None if each is None else each.to(narrow) for each in (weight, bias))
        return functional.batch_norm(x, mean, variance, wide_weight, wide_bias, False, 0.0, epsilon)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, mean, inverse = ctx.saved_tensors
        shape = [1, -1] + [1] * (x.dim() - 2)
        others = [d for d in range(x.dim()) if d != 1]
        wide = mean.dtype
        dy_wide = dy.to(wide)
        scaled = (x.to(wide) - mean.view(shape)).mul_(inverse.view(shape))
        sums = torch.stack((dy_wide.sum(others, dtype=torch.float64),
                            (dy_wide * scaled).sum(others, dtype=torch.float64)))
        dbias, dweight = sums
        joined = sums.clone()
        dist.all_reduce(joined, group=ctx.group)
        mean_dy, mean_dy_scaled = (joined / ctx.total).to(wide)
        factor = inverse if weight is None else inverse * weight.to(wide)
        dx = (dy_wide - mean_dy.view(shape)).sub_(scaled.mul_(mean_dy_scaled.view(shape))).mul_(factor.view(shape))
        return (dx.to(x.dtype), None if weight is None else dweight.to(weight.dtype),
                dbias.to(mean.dtype if weight is None else weight.dtype) if ctx.has_bias else None,
                None, None, None, None)


class SyncBatchNorm(_BatchNorm):
    """Batch-norm with the statistics of all ranks' samples together, for host memory, which torch's own lacks.

    Input and output: (N, C), (N, C, L), (N, C, H, W), …; N may differ between ranks and be 0. In training, forward is
    one small sum over the group (2 C + 1 doubles), backward another (2 C): collective, all ranks run the layers in one
    order. Running statistics (with the unbiased variance) are updated once a step, to the same bits on all ranks. In
    evaluation nothing is sent. The gradients of weight and bias are this rank's share, for DistributedDataParallel (or
    any reduction of gradients) to add up, as those of torch's SyncBatchNorm are.

    Arguments are those of torch.nn.SyncBatchNorm; process_group: None is the default group.
    """

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True,
                 process_group=None, device=None, dtype=None):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype)
        self.process_group = process_group

    def _check_input_dim(self, input):  # noqa: A002, torch's name
        if input.dim() < 2 or input.shape[1] != self.num_features:
            raise ValueError(with_advice(f"SyncBatchNorm expected (N, {self.num_features}, …), got "
                                         f"{tuple(input.shape)}",
                                         f"pass an input of {self.num_features} channels"))
        if input.device.type != "cpu":
            raise ValueError(with_advice("tutti.torch.SyncBatchNorm is for host memory, but the input is on "
                                         f"{input.device}",
                                         "use torch.nn.SyncBatchNorm for devices"))

    def _momentum(self) -> float:
        if self.num_batches_tracked is None:
            return self.momentum or 0.0
        self.num_batches_tracked.add_(1)
        return 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum

    def forward(self, input):  # noqa: A002, torch's name
        """Returns the normalised input, in the shape of the input."""
        self._check_input_dim(input)
        tracked = self.running_mean is not None
        if not self.training and tracked:
            return functional.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, False,
                                         0.0, self.eps)
        running = (self.running_mean, self.running_var) if self.training and tracked else None
        momentum = self._momentum() if running else 0.0
        if not self.training or not dist.is_initialized() or dist.get_world_size(self.process_group) == 1:
            return functional.batch_norm(input, *(running or (None, None)), self.weight, self.bias, True, momentum,
                                         self.eps)
        return _Normalize.apply(input, self.weight, self.bias, running, momentum, self.eps, self.process_group)

    @classmethod
    def convert_sync_batchnorm(cls, module, process_group=None):
        """As the function convert_sync_batchnorm."""
        return convert_sync_batchnorm(module, process_group)


def _converted(old, process_group):
    if isinstance(old, _LazyNormBase):
        raise ValueError(with_advice(f"{type(old).__name__} does not know its number of channels yet",
                                     "run the model once before you convert it"))
    new = SyncBatchNorm(old.num_features, old.eps, old.momentum, old.affine, old.track_running_stats, process_group,
                        device="meta")
    for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
        setattr(new, name, getattr(old, name))
    new.training = old.training
    return new


def convert_sync_batchnorm(module: torch.nn.Module, process_group=None) -> torch.nn.Module:
    """The module with every BatchNorm*d in it, at any depth, replaced by a SyncBatchNorm.

    Parameters and buffers stay the same objects, so existing optimizers still work. Returns a new layer if the module
    is a batch-norm itself, else the module.
    """
    if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
        return _converted(module, process_group)
    for name, child in module.named_children():
        setattr(module, name, convert_sync_batchnorm(child, process_group))
    return module
