"""A training loop whose model, optimizer and data Accelerate prepares for several processes without GPUs."""
import os
import statistics
import sys
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
assert accelerator.num_processes == 2, accelerator.num_processes
set_seed(0)
x = torch.randn(960, 64)
model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, data = accelerator.prepare(model, optimizer, DataLoader(TensorDataset(x, x[:, :8]), batch_size=16,
                                                                          shuffle=True))
times = []
for _ in range(3):
    for x, y in data:
        began = time.perf_counter()
        loss = (model(x) - y).square().mean()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - began)
        mean = accelerator.gather(loss.detach()).mean()
        if accelerator.is_main_process:
            print("LOSS", mean.item())
accelerator.save_state(os.path.join(sys.argv[1], "state"))
accelerator.wait_for_everyone()
accelerator.load_state(os.path.join(sys.argv[1], "state"))
if accelerator.is_main_process:
    print("STEP_MS", statistics.median(times[2:]) * 1000)
accelerator.end_training()
