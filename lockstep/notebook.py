"""What a person sees in a notebook: a bar that the browser draws below the cell, and lines under it. The only file that
imports IPython, which is there if a notebook is."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import Any

from lockstep.progress import describe_eval, describe_train

UPDATE_SECONDS = 0.2
"""A browser is told no more often."""


def is_here() -> bool:
    """Whether this process is the kernel of a notebook. A terminal's IPython has none."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class Notebook:
    """Output goes where `print` does: what goes to standard error looks like a mistake in a notebook."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._step, self._last, self._figures = 0, 0, "starting workers"
        self._shown = 0.0

    def start(self, title: str, first: int, last: int) -> None:
        from IPython.display import display

        print(title, flush=True)
        self._step, self._last = first, last
        self._bar = display(self._picture(), raw=True, display_id=True)

    def train_row(self, row: dict[str, Any]) -> None:
        self._step, self._figures = row["step"], describe_train(row)
        if time.monotonic() - self._shown >= UPDATE_SECONDS:
            self._update()

    def eval_row(self, row: dict[str, Any]) -> None:
        self.note(describe_eval(row))

    def note(self, text: str) -> None:
        print(text, flush=True)

    def close(self) -> None:
        self._update()

    def _update(self) -> None:
        self._shown = time.monotonic()
        if self._bar is not None:
            self._bar.update(self._picture(), raw=True)

    def _picture(self) -> dict[str, str]:
        """For a browser, and for what shows text alone."""
        text = f"step {self._step}/{self._last}: {self._figures}"
        bar = f'<progress value="{self._step}" max="{max(self._last, 1)}"></progress>'
        return {"text/html": f"{bar} <code>{escape(text)}</code>", "text/plain": text}
