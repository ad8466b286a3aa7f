"""A small GPT-2, made from a configuration, that the Trainer of Transformers trains to continue sequences."""
import statistics
import sys
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

STEPS = 40


class Losses(Trainer):
    losses = []

    def training_step(self, *arguments, **named):
        loss = super().training_step(*arguments, **named)
        self.losses.append(loss.item())
        return loss


class Steps(TrainerCallback):
    times = []

    def on_step_begin(self, *_, **__):
        self.began = time.perf_counter()

    def on_step_end(self, *_, **__):
        self.times.append(time.perf_counter() - self.began)


set_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=64, n_layer=2, n_head=2, bos_token_id=0,
                                   eos_token_id=0))
rows = [(torch.arange(32) * step + start) % 64 for step in range(1, 6) for start in range(64)]
arguments = TrainingArguments(sys.argv[1], use_cpu=True, max_steps=STEPS, per_device_train_batch_size=4,
                              learning_rate=0.003, report_to="none", save_strategy="no", logging_steps=5,
                              disable_tqdm=True, seed=0)
trainer = Losses(model=model, args=arguments, callbacks=[Steps()],
                 train_dataset=[{"input_ids": row, "labels": row} for row in rows])
trainer.train()
if trainer.is_world_process_zero():
    for loss in trainer.losses:
        print("LOSS", loss)
    print("STEP_MS", statistics.median(Steps.times[2:]) * 1000)
