"""Trainings that cost nothing, in the place of those that `bench.accuracy` starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import accuracy
from bench.ledger import Ledger
from bench.trainings import Memory, Trained


class FakeTrainings:
    """Notes who was to be trained with what, and may be interrupted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
        self.calls: list[str] = []
        self.interrupted_by = ""
        """The training that contains this is interrupted."""
        self.has_one_digest = True
        self.minutes: dict[str, float] = {}
        """Of trainings that contain a text; 14 otherwise."""
        self.top1: dict[str, float] = {}
        """Likewise; 0.91 otherwise."""
        monkeypatch.setattr(accuracy, "lockstep", self.lockstep)
        monkeypatch.setattr(accuracy, "plain", self.plain)
        monkeypatch.setattr(accuracy, "fastest_precision", lambda: precision)

    def lockstep(self, directory: Path, recipe: str, workers: int, options: tuple[str, ...]) -> Trained:
        steps = int(options[options.index("--stop-at") + 1]) if "--stop-at" in options else 1000
        digest = f"{recipe} {steps}" + ("" if self.has_one_digest else f" {workers}")
        return self._train(f"lockstep {recipe} {workers} {' '.join(options)}", steps, digest)

    def plain(
        self,
        directory: Path,
        recipe: str,
        seed: int,
        *,
        world: int = 2,
        steps: int | None = None,
        minutes: float | None = None,
        options: tuple[str, ...] = (),
    ) -> Trained:
        length = "" if minutes is None else f" for {minutes:g} min"
        what = f"plain {recipe.rpartition(':')[2]} seed {seed}, {world} processes{length} {' '.join(options)}"
        return self._train(what.rstrip(), steps or 1000, "")

    def _train(self, what: str, steps: int, digest: str) -> Trained:
        self.calls.append(what)
        if self.interrupted_by and self.interrupted_by in what:
            raise KeyboardInterrupt
        minutes = next((value for part, value in self.minutes.items() if part in what), 14.0)
        top1 = next((value for part, value in self.top1.items() if part in what), 0.91)
        return Trained(top1, minutes, steps, digest, 256.0, ((minutes, top1),))

    def memory(self, where: Path) -> Memory:
        return Memory(Ledger(where / "session.json", {}))

    def say(self, line: str) -> None:
        pass
