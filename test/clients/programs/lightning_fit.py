"""A network that Lightning's Trainer trains on two processes; Lightning starts the second one itself."""
import os
import statistics
import sys
import time

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset

FILE = os.path.join(sys.argv[1], "data.pt")


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 8))

    def prepare_data(self):  # on one process, for which the other waits
        torch.save(torch.randn(960, 64, generator=torch.Generator().manual_seed(0)), FILE)

    def train_dataloader(self):
        x = torch.load(FILE)
        return DataLoader(TensorDataset(x, x[:, :8]), batch_size=32, shuffle=True)

    def training_step(self, batch, _):
        x, y = batch
        loss = (self.layers(x) - y).square().mean()
        self.log("loss", loss, sync_dist=True)  # the mean of both processes
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Steps(L.Callback):
    def __init__(self):
        self.times = []

    def on_train_batch_start(self, *_):
        self.began = time.perf_counter()

    def on_train_batch_end(self, trainer, *_):
        self.times.append(time.perf_counter() - self.began)
        if trainer.is_global_zero:
            print("LOSS", trainer.callback_metrics["loss"].item())


L.seed_everything(0)
steps = Steps()
trainer = L.Trainer(devices=2, accelerator="cpu", strategy="ddp", max_epochs=6, callbacks=[steps], logger=False,
                    default_root_dir=sys.argv[1], enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Model())
if trainer.is_global_zero:
    print("STEP_MS", statistics.median(steps.times[2:]) * 1000)
