"""A bare PyTorch loop: gradient accumulation over micro-batches, and nobody to talk to. `python -m bench.peers.bare`

With `--world 2` two of these share a batch without ever meeting: what two cores could do if communication were free.
"""

from __future__ import annotations

from itertools import islice

import torch
import torch.nn.functional as F

from bench.peers import parts


def main() -> None:
    peer = parts.from_command_line()
    model = peer.model().train()
    optimizer = peer.optimizer(model)
    batches = peer.batches()
    losses = []
    for _ in peer.timed_steps():
        total = torch.zeros(())
        for images, labels in islice(batches, peer.micro_batches):
            loss = F.cross_entropy(model(images), labels) / peer.micro_batches
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total.item())
    peer.finish()


if __name__ == "__main__":
    main()
