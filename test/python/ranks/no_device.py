"""CUDA tensors where tutti finds no driver, and in a torch without CUDA. One process, acted out."""
import torch
import torch.distributed as dist

import acted
import tutti.torch
from cases import equal, raises

acted.cuda.act()
dist.init_process_group("tutti", rank=0, world_size=1, store=dist.HashStore())
x = acted.cuda.put(torch.ones(4), 0)
error = raises(tutti.torch.UnsupportedError, ["all_reduce", "driver", "TUTTI_CUDA_LIBRARY"], dist.all_reduce, x)
assert error.operation == "all_reduce"
y = torch.ones(4)
dist.all_reduce(y)
equal(y, torch.ones(4), "host memory")
acted.cuda.forget()
raises(ValueError, ["cuda:0", "built without CUDA"], dist.all_reduce, x)
dist.all_reduce(y)
equal(y, torch.ones(4), "host memory")
print("NO DEVICE ok", flush=True)
