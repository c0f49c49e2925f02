"""`python -m lockstep.replay`: does the steps of a run again, alone and one at a time, and says what came out.

The first line of its standard input says what to replay; every further line is a command: `step` does one more, `save
PATH` writes the state. Each is answered by a line of JSON. `lockstep.rerun` starts it, as a worker would be started.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, TextIO

from lockstep import checkpoint, strategies
from lockstep.config import Job, Recipe
from lockstep.configfile import from_plain
from lockstep.data import open_dataset
from lockstep.device import Device
from lockstep.digest import digest, entries_of_tensors
from lockstep.membership import Membership
from lockstep.replica import Replica
from lockstep.step import Step


class Replay:
    def __init__(self, recipe: Recipe, job: Job, num_steps: int, start: Path | None) -> None:
        dataset = open_dataset(recipe.data, recipe.seed)
        self._replica = Replica(recipe, dataset, num_steps, Device(recipe.device, recipe.threads, recipe.precision))
        membership = Membership.alone(recipe.leaves)
        self._strategy = strategies.build(job, recipe, dataset.train, self._replica, membership)
        self._step: Step = self._strategy.first_step(0)
        if start is not None:
            self._replica.load(checkpoint.load(start, dict(self._replica.named_state())))
            self._step.restart(checkpoint.read_info(start).step)

    def advance(self) -> None:
        """One more step; where workers exchange only after several, a round of them."""
        step = self._step
        while not step.done:
            for leaf in step.missing():
                step.hold(leaf, self._strategy.contribution(leaf))
            self._strategy.exchange(step)
        self._strategy.apply(step)
        self._step = step.next()

    def describe(self) -> dict[str, Any]:
        """The number of steps done, the digest that a run records, and one for every tensor."""
        model = self._replica.copy_state().model
        tensors = {name: digest(entries_of_tensors([(name, tensor)])) for name, tensor in model.items()}
        return {"step": self._step.index, "digest": digest(entries_of_tensors(model.items())), "tensors": tensors}

    def save(self, path: Path) -> None:
        from safetensors.torch import save_file

        save_file({name: tensor.contiguous() for name, tensor in self._replica.copy_state().model.items()}, path)


def serve(lines: TextIO, out: TextIO) -> None:
    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=out, flush=True)

    asked = json.loads(lines.readline())
    recipe, job = from_plain(asked["config"], "what to replay")
    replay = Replay(recipe, job, asked["num_steps"], None if asked["start"] is None else Path(asked["start"]))
    say(replay.describe())
    for line in lines:
        command, _, path = line.rstrip("\n").partition(" ")
        if command == "save":
            replay.save(Path(path))
            say({"saved": path})
        else:
            replay.advance()
            say(replay.describe())


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
