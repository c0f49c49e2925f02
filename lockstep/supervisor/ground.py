"""How far training has come, and what is lost when it goes back to a state that was kept. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Ground:
    """Useful seconds are those of the whole session less what misfortunes have cost: what lies between two visits to
    one step was in vain."""

    step: int = 0
    """The newest step that anyone is known to have been in since the last generation that went back."""
    _useful: dict[int, float] = field(default_factory=dict)
    """Useful seconds until each state that can be gone back to."""
    _stored: set[int] = field(default_factory=set)
    """Which of them outlive the workers."""

    def reach(self, step: int) -> None:
        self.step = max(self.step, step)

    def keep(self, step: int, useful_seconds: float, is_stored: bool) -> None:
        """A state that the run can go back to, stored or in the memory of its workers."""
        self._useful.setdefault(step, useful_seconds)
        if is_stored:
            self._stored.add(step)

    def newest_stored(self, up_to: int | None = None) -> int:
        """Where new workers would begin if all were lost now."""
        return max((step for step in self._stored if up_to is None or step <= up_to), default=0)

    def go_back(self, step: int, useful_seconds: float) -> tuple[int, float]:
        """How many steps are to be done again from `step` on, and the seconds that were in vain."""
        steps = max(0, self.step - step)
        # A state that is not known here is one of an earlier session: all of this one was in vain.
        since = self._useful.get(step, min(self._useful.values(), default=useful_seconds))
        self.step = step
        self._useful = {one: useful for one, useful in self._useful.items() if one <= step}
        self._stored = {one for one in self._stored if one <= step}
        return steps, max(0.0, useful_seconds - since)
