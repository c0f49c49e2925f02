"""What a person sees while a job runs: a bar on a terminal, plain lines in a file. All of it goes to standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from lockstep.goal import as_text, best_in, scores

PLAIN_SECONDS = 5.0
"""Plain lines are at least so far apart, but for evaluations."""


class Display(Protocol):
    def start(self, title: str, first: int, last: int) -> None: ...

    def train_row(self, row: dict[str, Any]) -> None: ...

    def eval_row(self, row: dict[str, Any]) -> None: ...

    def note(self, text: str) -> None: ...

    def close(self) -> None: ...


def display(quiet: bool = False, says_result: bool = True) -> Display:
    """The display that fits where standard error goes. Without `says_result` the last evaluation is left to the
    command, which prints it as the result: a person who sees both on one terminal need not read it twice."""
    if quiet:
        return Silent()
    return Bar(says_result or not sys.stdout.isatty()) if sys.stderr.isatty() else Lines()


def describe_eval(row: dict[str, Any]) -> str:
    return f"step {row['step']}: {describe_figures(row)}"


def describe_figures(row: dict[str, Any]) -> str:
    """What an evaluation has found, and the best so far."""
    figures = [*(f"{name} {as_text(name, value)}" for name, value in scores(row).items()), f"loss {row['loss']:.4f}"]
    best = best_in(row)
    behind = "" if best is None else f" (best {best[0]} {as_text(*best)})"
    return f"{', '.join(figures)} on {describe_examples(row)}{behind}"


def describe_examples(row: dict[str, Any]) -> str:
    """How many samples were evaluated, and whether they were the test set."""
    return f"{row['examples']} {'held-out' if row.get('held_out') else 'test'} {counted(row)}"


def counted(row: dict[str, Any]) -> str:
    """How that is called which a row counts."""
    return str(row.get("counted", "images"))


def describe_train(row: dict[str, Any]) -> str:
    found = [f"{name} {as_text(name, value)}, " for name, value in scores(row).items() if name != "top5"]
    return (
        f"loss {row['loss']:.4f}, {''.join(found)}lr {row['lr']:.4g}, "
        f"{row['steps_per_second']:.2f} steps/s, {row['images_per_second']:.0f} {counted(row)}/s"
    )


class Lines:
    """For logs and pipes."""

    def __init__(self) -> None:
        self._last, self._printed = 0, 0.0

    def start(self, title: str, first: int, last: int) -> None:
        self._last = last
        self.note(title)

    def train_row(self, row: dict[str, Any]) -> None:
        now = time.monotonic()
        if now - self._printed >= PLAIN_SECONDS:
            self._printed = now
            self.note(f"step {row['step']}/{self._last}: {describe_train(row)}")

    def eval_row(self, row: dict[str, Any]) -> None:
        self.note(describe_eval(row))

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        pass


class Sturdy:
    """Another display, until it can no longer be written to: a lost terminal or a closed pipe ends no training."""

    def __init__(self, display: Display) -> None:
        self._display: Display | None = display

    def start(self, title: str, first: int, last: int) -> None:
        self._try(lambda display: display.start(title, first, last))

    def train_row(self, row: dict[str, Any]) -> None:
        self._try(lambda display: display.train_row(row))

    def eval_row(self, row: dict[str, Any]) -> None:
        self._try(lambda display: display.eval_row(row))

    def note(self, text: str) -> None:
        self._try(lambda display: display.note(text))

    def close(self) -> None:
        self._try(lambda display: display.close())

    def _try(self, show: Callable[[Display], None]) -> None:
        if self._display is None:
            return
        try:
            show(self._display)
        except (OSError, SystemExit):  # rich ends the process when a pipe is closed
            self._display = None


class Silent:
    """For programs that only want the result; warnings are still shown."""

    def start(self, title: str, first: int, last: int) -> None:
        pass

    def train_row(self, row: dict[str, Any]) -> None:
        pass

    def eval_row(self, row: dict[str, Any]) -> None:
        pass

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        pass


class Bar:
    """For a terminal."""

    def __init__(self, says_result: bool = True) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
            # Names of runs and metrics are text: neither markup nor emoji.
            console=Console(stderr=True, markup=False, emoji=False, highlight=False),
        )
        self._task: Any = None
        self._says_result = says_result
        self._last = 0

    def start(self, title: str, first: int, last: int) -> None:
        self._last = last
        if self._task is not None:  # of a training before, whose bar stays where it is
            self._progress.remove_task(self._task)
        self._progress.start()
        self.note(title)
        self._task = self._progress.add_task("steps", total=last, completed=first, figures="starting workers")

    def train_row(self, row: dict[str, Any]) -> None:
        found = [f"{name} {as_text(name, value)}  " for name, value in scores(row).items() if name != "top5"]
        figures = f"loss {row['loss']:.3f}  {''.join(found)}{row['images_per_second']:.0f} {counted(row)}/s"
        self._progress.update(self._task, completed=row["step"], figures=figures)

    def eval_row(self, row: dict[str, Any]) -> None:
        if self._says_result or row["step"] != self._last:
            self.note(describe_eval(row))

    def note(self, text: str) -> None:
        self._progress.console.print(text)

    def close(self) -> None:
        self._progress.stop()
