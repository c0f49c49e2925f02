"""`lockstep data get` and `lockstep data check`. Parsing imports nothing heavy; commands import what they use."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lockstep.errors import UserError

if TYPE_CHECKING:
    from lockstep.data.download import Progress

PLAIN_SECONDS = 5.0
"""Plain lines of progress are so far apart."""


def add_commands(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(title="actions", metavar="ACTION", required=True)
    summary = "download CIFAR-10 or CIFAR-100, check it and unpack it"
    get = actions.add_parser("get", help=summary, description=summary, epilog="example: lockstep data get cifar10 data")
    get.add_argument("name", choices=("cifar10", "cifar100"), help="the data set")
    get.add_argument("directory", metavar="DIR", help="where its folder is made")
    get.add_argument("--format", choices=("binary", "python"), default="binary", help="which version; default: binary")
    get.add_argument("--url", metavar="URL", help="another place that has the official archive")
    get.set_defaults(command=_get)
    summary = "say what a path holds, and what is wrong with it"
    check = actions.add_parser("check", help=summary, description=summary, epilog="example: lockstep data check data")
    check.add_argument("path", metavar="PATH", help="directory, archive, files or glob, as --data takes it")
    check.set_defaults(command=check_path)


def _get(parsed: argparse.Namespace) -> int:
    from pathlib import Path

    from lockstep.data import download

    wanted = download.ARCHIVES[parsed.name, parsed.format]
    folder = Path(parsed.directory) / wanted.folder
    if download.is_complete(folder, wanted):
        print(f"{folder} is there already")
        return 0
    with _progress(wanted.name) as progress:
        download.get(wanted, Path(parsed.directory), parsed.url, progress)
    print(f"{folder} is complete: train with --data {folder}")
    return 0


def check_path(parsed: argparse.Namespace) -> int:
    from lockstep.data.survey import survey

    result = survey(parsed.path)
    for line in result.lines:
        print(line)
    for problem in result.problems[:-1]:
        print(f"lockstep: {problem}", file=sys.stderr)
    if result.problems:
        raise UserError(result.problems[-1])
    return 0


@contextmanager
def _progress(name: str) -> Iterator[Progress]:
    """A bar on a terminal, plain lines elsewhere, on standard error."""
    if not sys.stderr.isatty():
        yield _Lines(name).show
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _Lines:
    def __init__(self, name: str) -> None:
        self._name, self._shown = name, 0.0

    def show(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if now - self._shown >= PLAIN_SECONDS or done == total:
            self._shown = now
            whole = f" of {total / 1e6:.1f}" if total else ""
            print(f"{self._name}: {done / 1e6:.1f}{whole} MB", file=sys.stderr, flush=True)
