import os
from typing import Any, Callable, Literal

import torch
import torch.distributed as dist
from torch.nn.modules.batchnorm import _BatchNorm

from ..communicator import Communicator
from ._errors import (
    AbortedError as AbortedError,
    Error as Error,
    MismatchError as MismatchError,
    PeerLostError as PeerLostError,
    RevokedError as RevokedError,
    TimedOutError as TimedOutError,
    UnsupportedError as UnsupportedError,
)

class Options(dict[str, Any]): ...

def build() -> Any: ...
def register() -> None: ...
def install(as_gloo: bool = False, as_default: bool = False) -> None: ...
def abort(group: dist.ProcessGroup | None = None) -> None: ...
def backend_of(group: dist.ProcessGroup | None = None) -> Any: ...
def dump(
    path: str | os.PathLike[str], group: dist.ProcessGroup | None = None, format: Literal["json", "torch"] = "json"
) -> None: ...
def last_error(group: dist.ProcessGroup | None = None) -> Error | None: ...
def lost_ranks(group: dist.ProcessGroup | None = None) -> list[int]: ...
def memory_stats(group: dist.ProcessGroup | None = None) -> dict[str, int]: ...
def communicator(group: dist.ProcessGroup | None = None) -> Communicator: ...
def sync_buffers(
    model: torch.nn.Module, how: Literal["mean", "broadcast"] = "mean", group: dist.ProcessGroup | None = None
) -> None: ...
def convert_sync_batchnorm(
    module: torch.nn.Module, process_group: dist.ProcessGroup | None = None
) -> torch.nn.Module: ...

class LocalSGD(torch.optim.Optimizer):
    optimizer: torch.optim.Optimizer
    k: int
    steps: int
    group: dist.ProcessGroup | None
    def __init__(
        self, optimizer: torch.optim.Optimizer, k: int, group: dist.ProcessGroup | None = None
    ) -> None: ...
    def step(self, closure: Callable[[], Any] | None = None) -> Any: ...
    def average(self) -> None: ...

class ShardedSoftmax(torch.nn.Module):
    in_features: int
    classes: int
    first: int
    rows: int
    weight: torch.nn.Parameter
    bias: torch.nn.Parameter | None
    def __init__(
        self,
        in_features: int,
        classes: int,
        bias: bool = True,
        group: dist.ProcessGroup | None = None,
        ignore_index: int = -100,
        input_gradient_scale: float = 1.0,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def reset_parameters(self) -> None: ...
    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor: ...

class SyncBatchNorm(_BatchNorm):
    process_group: dist.ProcessGroup | None
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: dist.ProcessGroup | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def forward(self, input: torch.Tensor) -> torch.Tensor: ...
    @classmethod
    def convert_sync_batchnorm(
        cls, module: torch.nn.Module, process_group: dist.ProcessGroup | None = None
    ) -> torch.nn.Module: ...
