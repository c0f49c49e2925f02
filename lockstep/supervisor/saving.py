"""Which checkpoint has been asked for, which are safe, and what to do when one cannot be written. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lockstep.supervisor.events import Checkpointed, CheckpointFailed

FINAL_TRIES = 3
"""How often the last checkpoint is tried."""
RETRY_SECONDS = 10.0
"""How long after a checkpoint could not be written it is tried again."""


class Remedy(Enum):
    """What follows from a checkpoint that could not be written."""

    GIVE_UP = 0
    AT_ONCE = 1
    LATER = 2


@dataclass
class Saving:
    last_step: int
    required: bool = True
    """Whether the run must end with a checkpoint of its last step; otherwise none is written at all."""
    asked: str | None = None
    """The reason of the checkpoint that was asked for and has not been written."""
    _saved: int = -1
    _retry_at: float | None = None
    _final_failures: int = 0
    _went_back: tuple[int, int] = (0, 0)
    """The number of the last generation that went back, or began anew, and the step to which nothing older reaches."""

    @property
    def is_complete(self) -> bool:
        """Whether the run may end as far as checkpoints go."""
        return not self.required or self._saved >= self.last_step

    def ask(self, reason: str) -> None:
        self.asked, self._retry_at = reason, None

    def is_retry_due(self, now: float) -> bool:
        return self._retry_at is not None and now >= self._retry_at

    def go_back(self, number: int, step: int) -> None:
        """Checkpoints after `step` from generations before `number` count no more, also those that come late."""
        self._went_back = (number, step)
        self._saved = min(self._saved, step)

    def written(self, event: Checkpointed) -> bool:
        """Take note of a checkpoint; False if it is of a state that the run has gone back from."""
        if event.number < self._went_back[0] and event.step > self._went_back[1]:
            return False
        self._saved = max(self._saved, event.step)
        self._retry_at = None
        self._answered(event.reason)
        return True

    def failed(self, event: CheckpointFailed, now: float) -> Remedy:
        self._answered(event.reason)
        if event.reason == "stop":
            return Remedy.GIVE_UP
        if event.step == self.last_step:
            self._final_failures += 1
            return Remedy.GIVE_UP if self._final_failures >= FINAL_TRIES else Remedy.AT_ONCE
        self._retry_at = now + RETRY_SECONDS
        return Remedy.LATER

    def _answered(self, reason: str | None) -> None:
        if reason == self.asked:
            self.asked = None
