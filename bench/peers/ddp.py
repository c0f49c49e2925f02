"""PyTorch's DistributedDataParallel over gloo, with its defaults. `python -m bench.peers.ddp`

As many micro-batches as Lockstep has leaves, synchronised with the last (`no_sync` before), or one plain batch per
process, which is what most users of DDP run. Under torchrun its ranks meet at torchrun's store, and `--out` is a
directory.
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import islice

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from bench.peers import parts


def main() -> None:
    peer = parts.from_command_line()
    if dist.is_torchelastic_launched():
        dist.init_process_group("gloo")
        peer.out /= f"rank{peer.rank}.json"
    else:
        # A file to meet at needs no free port, which somebody else might take first.
        meeting = peer.out.with_name("meeting").resolve().as_uri()
        dist.init_process_group("gloo", init_method=meeting, rank=peer.rank, world_size=peer.world)
    model = DistributedDataParallel(peer.model()).train()
    optimizer = peer.optimizer(model)
    batches = peer.batches()
    losses = []
    for _ in peer.timed_steps():
        total = torch.zeros(())
        for number, (images, labels) in enumerate(islice(batches, peer.micro_batches), start=1):
            with nullcontext() if number == peer.micro_batches else model.no_sync():
                loss = F.cross_entropy(model(images), labels) / peer.micro_batches
                loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total.item())
    peer.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
