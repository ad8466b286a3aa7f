"""The module of acted/acted_cuda.cpp, which the test has compiled; its path comes with the environment."""
import importlib.machinery
import importlib.util
import os

import torch
import torch.distributed as dist
from torch.distributed import c10d_logger

ONE_DEVICE = "TUTTI_TEST_ONE_DEVICE" in os.environ
DEVICE = 0 if ONE_DEVICE else int(os.environ.get("RANK", "0"))
LOADER = importlib.machinery.ExtensionFileLoader("acted_cuda", os.environ["TUTTI_TEST_ACTED"])
SPEC = importlib.util.spec_from_file_location("acted_cuda", os.environ["TUTTI_TEST_ACTED"], loader=LOADER)
cuda = importlib.util.module_from_spec(SPEC)
LOADER.exec_module(cuda)


class Stream:
    def __init__(self, stream_id, device_index, device_type):
        assert device_type == 1, device_type  # CUDA
        self.cuda_stream = cuda.handle(device_index, stream_id)


# In these functions torch asks the real CUDA runtime, which does not know the devices of the acted driver.
torch.cuda.Stream = Stream  # torch 2.4 has no other way to a stream's handle
torch.cuda._lazy_init = lambda: None
c10d_logger._get_msg_dict = lambda name, *arguments, **named: {"func_name": name}  # has the tensors printed
torch.cuda.get_device_capability = lambda device=None: (9, 0)
if hasattr(torch, "accelerator"):
    torch.accelerator.device_count = lambda: 4
# The backend registers for CUDA where there is some; everywhere else torch is to know that there is none.
is_available, torch.cuda.is_available = torch.cuda.is_available, lambda: True
import tutti.torch  # noqa: E402, F401
torch.cuda.is_available = is_available


def put(values):
    """On the rank's own device, or on the one that all have."""
    return cuda.put(values, DEVICE)


def check_violations():
    """Checks, once all ranks are done, that this rank broke no rule of the CUDA driver."""
    dist.barrier()
    assert cuda.violations() == "", cuda.violations()
