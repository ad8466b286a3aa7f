"""Keeping replicas of a model together without a reduction in every step: buffers, and LocalSGD."""

from __future__ import annotations

import torch
import torch.distributed as dist

from .._errors import with_advice

#: The most bytes of tensors that are sent together: larger buckets would only need more memory.
BUCKET_BYTES = 25 << 20


def buckets_of(tensors, limit=BUCKET_BYTES):
    """Lists of tensors of one type and device, in order: the same on every rank, as the tensors are."""
    open_buckets, nbytes, full = {}, {}, []
    for tensor in tensors:
        kind = (tensor.dtype, tensor.device)
        open_buckets.setdefault(kind, []).append(tensor)
        nbytes[kind] = nbytes.get(kind, 0) + tensor.nbytes
        if nbytes[kind] >= limit:
            full.append(open_buckets.pop(kind))
            del nbytes[kind]
    return full + list(open_buckets.values())


@torch.no_grad()
def _together(tensors, group, issue, write=True):
    """Calls issue to start an operation on each bucket, as one flat tensor, and writes the results back."""
    if dist.get_rank(group) < 0:
        raise ValueError(with_advice("this rank is not in the group of the replicas",
                                     "make the call on the group's ranks only"))
    under_way = []
    for bucket in buckets_of(tensors):
        alone = len(bucket) == 1 and bucket[0].is_contiguous()
        flat = bucket[0].detach().view(-1) if alone else torch.cat([each.detach().reshape(-1) for each in bucket])
        under_way.append(([] if alone else bucket, flat, issue(flat)))
    for bucket, flat, work in under_way:
        work.wait()
        if write and bucket:
            for tensor, part in zip(bucket, flat.split([each.numel() for each in bucket])):
                tensor.copy_(part.view(tensor.shape))


def average(tensors, group=None) -> None:
    """Sets each tensor, of a floating or complex type, to the mean of all ranks' (in place)."""
    _together(tensors, group, lambda flat: dist.all_reduce(flat, dist.ReduceOp.AVG, group=group, async_op=True))


def broadcast(tensors, group=None, root=0) -> None:
    """Sets each tensor to that of the group's rank root (in place)."""
    source = dist.get_global_rank(group or dist.group.WORLD, root)
    _together(tensors, group, lambda flat: dist.broadcast(flat, source, group=group, async_op=True),
              write=dist.get_rank(group) != root)


def _can_be_averaged(tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def sync_buffers(model: torch.nn.Module, how: str = "mean", group=None) -> None:
    """Makes a model's buffers, such as running statistics, the same on all ranks; in place, of any shape.

    how: "mean" averages floating and complex buffers and takes integers (counters) from the group's rank 0;
    "broadcast" takes all buffers from rank 0.

    Collective: every rank has the same buffers. Small ones are sent together.
    """
    if how not in ("mean", "broadcast"):
        raise ValueError(with_advice(f"sync_buffers: unknown how={how!r}", "pass how='mean' or how='broadcast'"))
    buffers = list(model.buffers())
    averaged = [buffer for buffer in buffers if how == "mean" and _can_be_averaged(buffer)]
    average(averaged, group)
    broadcast([buffer for buffer in buffers if how == "broadcast" or not _can_be_averaged(buffer)], group)


def _of_the_optimizer(name):
    def method(self, *arguments, **named):
        return getattr(self.optimizer, name)(*arguments, **named)

    method.__name__ = name
    return method


class LocalSGD(torch.optim.Optimizer):
    """An optimizer whose replicas follow their own gradients, and average the parameters every k steps.

        optimizer = tutti.torch.LocalSGD(torch.optim.SGD(model.parameters(), lr=0.1), k=8)

    The model is used without DistributedDataParallel. With k = 1, plain SGD and SGD with momentum equal synchronous
    SGD with averaged gradients. Each rank keeps its own optimizer state, such as momentum.

    The constructor is collective: rank 0's parameters go to all ranks. So are each k-th step and average(); call that
    after the last step if k does not divide the number of steps. Learning-rate schedulers accept it as an optimizer.
    Hooks are registered with the inner optimizer: step hooks get that one, and run before the average.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, k: int, group=None):  # noqa: super().__init__ makes a state
        if int(k) != k or k < 1:
            raise ValueError(with_advice(f"LocalSGD: k is {k!r}, but LocalSGD averages every k-th step",
                                         "pass a whole number of 1 or more"))
        self.optimizer = optimizer
        self.k = int(k)
        self.group = group
        self.steps = 0  # finished steps
        broadcast(self._parameters(), group)

    def _parameters(self):
        parameters = [parameter for part in self.param_groups for parameter in part["params"]]
        for parameter in parameters:
            if hasattr(parameter, "device_mesh"):
                raise TypeError(with_advice("LocalSGD averages whole parameters, but this model's are sharded "
                                            "(DTensor)",
                                            "use a model without sharded parameters"))
        return parameters

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    @property
    def state(self):
        return self.optimizer.state

    @property
    def defaults(self):
        return self.optimizer.defaults

    def __repr__(self) -> str:
        return f"LocalSGD(k={self.k}, {self.optimizer!r})"

    def step(self, closure=None):
        """A step of the optimizer; each k-th is collective and gives all ranks the mean of their parameters."""
        loss = self.optimizer.step(closure)
        self.steps += 1
        if self.steps % self.k == 0:
            self.average()
        return loss

    def average(self) -> None:
        """Collective: sets the parameters to the mean of all ranks'."""
        average(self._parameters(), self.group)

    register_step_pre_hook = _of_the_optimizer("register_step_pre_hook")
    register_step_post_hook = _of_the_optimizer("register_step_post_hook")
    register_state_dict_pre_hook = _of_the_optimizer("register_state_dict_pre_hook")
    register_state_dict_post_hook = _of_the_optimizer("register_state_dict_post_hook")
    register_load_state_dict_pre_hook = _of_the_optimizer("register_load_state_dict_pre_hook")
    register_load_state_dict_post_hook = _of_the_optimizer("register_load_state_dict_post_hook")

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group) -> None:
        """Collective, like the constructor: rank 0's new parameters go to all ranks."""
        before = len(self.param_groups)
        self.optimizer.add_param_group(param_group)
        broadcast([parameter for part in self.param_groups[before:] for parameter in part["params"]], self.group)

    def state_dict(self):
        """The optimizer's, with "local_steps": the number of finished steps."""
        return {**self.optimizer.state_dict(), "local_steps": self.steps}

    def load_state_dict(self, state_dict) -> None:
        """Also takes a state of the optimizer alone; the count of steps then begins anew."""
        state = dict(state_dict)
        self.steps = int(state.pop("local_steps", 0))
        self.optimizer.load_state_dict(state)

    def __getstate__(self):
        raise TypeError(with_advice("a LocalSGD belongs to a process group and cannot be copied or pickled",
                                    "save its state_dict()"))
