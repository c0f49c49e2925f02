"""torchft: replicas that go on without a dead one. The only file that imports it; a replica and the lighthouse.

    python -m bench.peers.ft RECIPE --rank R --world N ...     one replica, a group of one process
    python -m bench.peers.ft lighthouse FILE                   whom the replicas ask who is there; its address in FILE

The gradients are one flat vector, reduced by `manager.allreduce`: the torchft wrapper of DistributedDataParallel has
crashed survivors. A replica takes its part of the batch of whatever step the manager is at, so that no sample is read
twice and only those of a missing replica are lost.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torchft import Manager, ProcessGroupGloo  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torchft.coordination import LighthouseServer  # type: ignore[import-not-found, import-untyped, unused-ignore]

from bench.journal import Journal
from bench.peers import parts

LOOPBACK = "127.0.0.1"
TIMEOUT = timedelta(seconds=5)
HEARTBEAT_MS, JOIN_MS, TICK_MS = 1000, 1000, 50
"""Silence that makes a replica dead, the wait for one that is alive but not there yet, and how often both are judged.
The defaults are 5 s, 60 s and 0.1 s."""


def main() -> None:
    peer = parts.from_command_line()
    model = peer.model().train()
    optimizer = peer.optimizer(model)
    gradient = flat_gradient(model)

    def load_state_dict(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    store = TCPStore(LOOPBACK, 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=TIMEOUT),
        load_state_dict=load_state_dict,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        min_replica_size=1,
        timeout=TIMEOUT,
        quorum_timeout=4 * TIMEOUT,
        connect_timeout=TIMEOUT,
        rank=0,
        world_size=1,
        store_addr=LOOPBACK,
        store_port=store.port,
        replica_id=f"replica_{peer.rank}",
        hostname=LOOPBACK,
        init_sync=False,  # the weights come from one seed
    )
    wait_for_others(peer)
    journal = Journal(peer.out / f"rank{peer.rank}.steps")
    share = peer.recipe.global_batch // peer.world
    while manager.current_step() < peer.num_steps:
        started = time.perf_counter()
        manager.start_quorum()
        gradient.zero_()
        for images, labels in peer.batches_of(manager.current_step()):
            (F.cross_entropy(model(images), labels) / peer.micro_batches).backward()
        manager.allreduce(gradient).wait()
        if manager.should_commit():
            optimizer.step()
            journal.note(manager.current_step(), manager.num_participants() * share)
        else:
            journal.note(manager.current_step() + 1, 0)
        peer.first_step_at = peer.first_step_at or time.time()
        peer.step_seconds.append(time.perf_counter() - started)
    parts.write_measured(peer.out / f"rank{peer.rank}.json", peer.step_seconds, peer.first_step_at)
    peer.save_weights(model)
    os._exit(0)  # the threads of torchft would hold it up


def flat_gradient(model: nn.Module) -> Tensor:
    """One vector that holds the gradients of all parameters."""
    parameters = list(model.parameters())
    flat = torch.zeros(sum(parameter.numel() for parameter in parameters))
    parts_ = flat.split([parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts_, strict=True):
        parameter.grad = part.view(parameter.shape)
    return flat


def wait_for_others(peer: parts.Peer) -> None:
    """The first replicas begin together, and not each when it is ready; for a later one all have been there."""
    (peer.out / f"ready{peer.rank}").touch()
    while len(list(peer.out.glob("ready*"))) < peer.world:
        time.sleep(0.02)


def lighthouse(path: Path) -> None:
    server = LighthouseServer(
        bind=f"{LOOPBACK}:0",
        min_replicas=1,
        join_timeout_ms=JOIN_MS,
        quorum_tick_ms=TICK_MS,
        heartbeat_timeout_ms=HEARTBEAT_MS,
    )
    port = server.address().rpartition(":")[2]
    path.write_text(f"http://{LOOPBACK}:{port}")  # it would name this machine, which may mean another address
    signal.pause()


if __name__ == "__main__":
    if sys.argv[1:2] == ["lighthouse"]:
        lighthouse(Path(sys.argv[2]))
    else:
        main()
