"""DistributedDataParallel under `torchrun`, which restarts everyone when one dies; they resume from a checkpoint.

torchrun --standalone --nproc-per-node 4 --max-restarts 100 -m bench.peers.elastic RECIPE ...
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bench.journal import Journal
from bench.peers import parts

CHECKPOINT_EVERY = 50


def main() -> None:
    peer = parts.from_command_line()
    dist.init_process_group("gloo")
    train(peer)
    dist.destroy_process_group()


def train(peer: parts.Peer) -> None:
    """From the checkpoint, if there is one, to the end; the process group is there already."""
    (peer.out / f"rank{peer.rank}.pid").write_text(str(os.getpid()))
    model = peer.model().train()
    optimizer = peer.optimizer(model)
    checkpoint = peer.out / "checkpoint.pt"
    first = restore(checkpoint, model, optimizer)
    wrapped = DistributedDataParallel(model)
    journal = Journal(peer.out / f"rank{peer.rank}.steps")
    for done in range(first + 1, peer.num_steps + 1):
        images, labels = peer.batch(done - 1)
        F.cross_entropy(wrapped(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        journal.note(done, peer.recipe.global_batch)
        if done % CHECKPOINT_EVERY == 0 and peer.rank == 0:
            save(checkpoint, model, optimizer, done)
    if peer.rank == 0:
        peer.save_weights(model)


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, done: int) -> None:
    """Under another name first: whoever is killed while writing leaves the old one."""
    temporary = path.with_suffix(".new")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": done}, temporary)
    temporary.replace(path)


def restore(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the checkpoint if there is one; how many steps are done."""
    if not path.exists():
        return 0
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


if __name__ == "__main__":
    main()
