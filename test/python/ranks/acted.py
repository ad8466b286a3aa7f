"""The module of acted/acted_cuda.cpp, which the test has compiled; its path comes with the environment."""
import importlib.machinery
import importlib.util
import os

import torch

LOADER = importlib.machinery.ExtensionFileLoader("acted_cuda", os.environ["TUTTI_TEST_ACTED"])
SPEC = importlib.util.spec_from_file_location("acted_cuda", os.environ["TUTTI_TEST_ACTED"], loader=LOADER)
cuda = importlib.util.module_from_spec(SPEC)
LOADER.exec_module(cuda)

# Where torch asks the CUDA runtime itself, which knows nothing of the act.
torch.cuda._lazy_init = lambda: None
torch.cuda.get_device_capability = lambda device=None: (9, 0)
