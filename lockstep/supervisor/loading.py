"""Which checkpoints processes in set-up are loading: those must not be deleted meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable
from pathlib import Path

from lockstep import checkpoint


class Loading:
    def __init__(self, stored: Path | None, note: Callable[[str], None]) -> None:
        self._stored = stored
        """What the run began with; it was verified before the start."""
        self._note = note
        self._paths: dict[int, Path] = {}

    async def choose(self, id_: int, listed: Iterable[Path]) -> Path | None:
        """The newest good one, which from now on is not deleted until the process has loaded it."""
        problems: list[str] = []
        found = None
        for path in [*listed, *([] if self._stored is None else [self._stored])]:
            self._paths[id_] = path
            try:
                if path != self._stored:
                    await asyncio.to_thread(checkpoint.verify, path)
                found = path
                break
            except checkpoint.Damaged as damage:
                problems.append(str(damage))
        for sentence in checkpoint.describe_damage(problems, found is not None):
            self._note(sentence)
        if found is None:
            self.done(id_)
        return found

    def path(self, id_: int) -> Path | None:
        return self._paths.get(id_)

    def done(self, id_: int) -> None:
        self._paths.pop(id_, None)

    def names(self, living: Container[int]) -> set[str]:
        """What is in use; the dead need nothing."""
        return {path.name for id_, path in self._paths.items() if id_ in living}
