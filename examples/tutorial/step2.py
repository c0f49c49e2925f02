"""ResNet-20 on CIFAR-10: a script that docs/tutorial.md turns into one for any number of workers, step by step."""

import argparse

import torch
import torch.nn.functional as F
from cifar import Cifar10
from resnet import ResNet20
from torch.utils.data import DataLoader

import lockstep

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True, help="the directory cifar-10-batches-bin")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=128)
options = parser.parse_args()

torch.manual_seed(0)
train_set = Cifar10(options.data, train=True)
test_set = Cifar10(options.data, train=False)
train_loader = DataLoader(train_set, batch_size=options.batch_size, shuffle=True, num_workers=2)
test_loader = DataLoader(test_set, batch_size=250)
model = ResNet20()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=options.epochs)
job = lockstep.job(model=model, optimizer=optimizer, scheduler=scheduler, seed=0)


def score(images, labels):
    logits = model(images)
    return {"top1": (logits.argmax(1) == labels).sum(), "loss": F.cross_entropy(logits, labels, reduction="sum")}


for epoch in range(options.epochs):
    model.train()
    for images, labels in train_loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    scheduler.step()

    model.eval()
    with torch.no_grad():
        hits = sum(score(images, labels)["top1"].item() for images, labels in test_loader)
    print(f"epoch {epoch}: top1 {hits / len(test_set):.2%}")
    torch.save(model.state_dict(), "resnet20.pt")
