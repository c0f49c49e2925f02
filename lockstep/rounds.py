"""Rounds: the steps between two exchanges, and what falls due at the end of one. Pure.

A round begins at a multiple of its length and ends at the next, or where the recipe ends. Where every step is exchanged
a round is one step, and nothing here is noticed.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.errors import UserError


@dataclass(frozen=True)
class Rounds:
    length: int = 1
    num_steps: int | None = None
    """The length of the recipe: its last round is cut short. None where that is no matter."""

    def end(self, index: int) -> int:
        """How many steps are done after the round in which step `index` is."""
        end = (index // self.length + 1) * self.length
        return end if self.num_steps is None or index >= self.num_steps else min(end, self.num_steps)

    def before(self, done: int) -> int:
        """How many steps were done at the end before the one at which `done` are."""
        return (done - 1) // self.length * self.length

    def is_due(self, every: int, done: int) -> bool:
        """Whether something that is planned every so many steps was due since the end before: a plan for the middle of
        a round waits for its end. Never, if `every` is 0."""
        return every > 0 and done // every > self.before(done) // every

    def splits(self, done: int) -> bool:
        """Whether a run that goes on here would have exchanged nothing here, had it been longer from the start."""
        return done % self.length != 0

    def check_end(self, last: int) -> None:
        """A run ends with a round: a shorter one would give all that follows other bits."""
        if self.num_steps is None or last in (self.num_steps, self.end(last - 1)):
            return
        earlier, later = self.before(last), self.end(last)
        ends = f"{earlier} or {later}" if earlier else f"{later}"
        raise UserError(f"{last} steps end inside a round of {self.length} local steps: take --stop-at {ends}")


EVERY_STEP = Rounds()
