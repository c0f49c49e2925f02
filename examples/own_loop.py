"""The script of `one_process.py` on any number of workers: `lockstep launch --workers 2 examples/own_loop.py`."""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lockstep

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.01)
options = parser.parse_args()

torch.manual_seed(0)
pixels = torch.randn(1280, 3, 8, 8)
classes = pixels[:, :, :4].mean((2, 3)).argmax(1)  # the channel whose upper half is brightest
train_set, test_set = TensorDataset(pixels[:1024], classes[:1024]), TensorDataset(pixels[1024:], classes[1024:])
loader = DataLoader(train_set, batch_size=64, shuffle=True)
test_loader = DataLoader(test_set, batch_size=100)

model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=options.epochs * len(loader))


def score(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Sums over the examples."""
    logits = model(images)
    return {"loss": F.cross_entropy(logits, labels, reduction="sum"), "top1": (logits.argmax(1) == labels).sum()}


job = lockstep.job(model=model, optimizer=optimizer, scheduler=scheduler)
for step in job.batches(loader, epochs=options.epochs):
    while not step.done:
        for images, labels in step.leaves():
            loss = F.cross_entropy(model(images), labels)
            step.backward(loss)
        step.exchange()
    optimizer.step()
    scheduler.step()
    if step.ends_epoch:
        figures = job.evaluate(test_loader, score)
        job.say(f"epoch {step.epoch}: top1 {figures['top1']:.2%}")
job.say(f"digest {job.digest()}")
