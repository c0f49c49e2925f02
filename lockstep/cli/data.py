"""`lockstep data ...`: get, check, index, count, mean. Parsing imports nothing heavy; commands import what they use."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lockstep.errors import UserError

if TYPE_CHECKING:
    from lockstep.data import indexing
    from lockstep.data.download import Progress
    from lockstep.data.index import Index
    from lockstep.data.listing import Wanted
    from lockstep.data.storage import Storage

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
    check.add_argument("path", metavar="PATH|URL", help="directory, archive, files or glob, as --data takes it")
    check.add_argument("--decode", action="store_true", help="of images in shards and folders: decode all of them")
    _shard_options(check)
    check.set_defaults(command=check_path)
    for name, summary, run in (
        ("index", "list the images in shards or folders, which training does by itself; verifies them", _index),
        ("count", "print the number of images in shards or folders", _count),
        ("mean", "the mean of all images, scaled to a square", _mean),
    ):
        example = f"example: lockstep data {name} s3://bucket/train" + (" --out mean.npy" if name == "mean" else "")
        action = actions.add_parser(name, help=summary, description=summary, epilog=example)
        action.add_argument(
            "path", metavar="PATH|URL", help="tars, TFRecords or folders of images, as --data takes them"
        )
        _shard_options(action)
        action.set_defaults(command=run)
        if name == "mean":
            action.add_argument("--out", metavar="FILE.npy", required=True, help="where the mean image is written")
            action.add_argument("--side", type=int, default=256, metavar="PIXELS", help="of the square; default: 256")


def _shard_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--labels", metavar="PATH|URL", help="lines of `name label`, if the images do not say it")
    command.add_argument("--key-prefix", default="", metavar="TEXT", help="of many shards, those whose names begin so")
    command.add_argument("--endpoint-url", metavar="URL", help="another server that speaks S3")
    command.add_argument("--anonymous", action="store_true", help="read from S3 without credentials")


def _get(parsed: argparse.Namespace) -> int:
    from pathlib import Path

    from lockstep.data import download

    wanted = download.ARCHIVES[parsed.name, parsed.format]
    folder = Path(parsed.directory) / wanted.folder
    if download.is_complete(folder, wanted):
        print(f"{folder} is there already")
        return 0
    if (other := download.other_file(folder, wanted)) is not None:
        kept = download.aside(folder)
        print(f"{other} is not the official file, by its size: what is there goes to {kept}", file=sys.stderr)
    with _progress(wanted.name) as progress:
        download.get(wanted, Path(parsed.directory), parsed.url, progress)
    print(f"{folder} is complete: train with --data {folder}")
    return 0


def check_path(parsed: argparse.Namespace) -> int:
    from lockstep.data import shardsurvey, survey

    wanted, storage = _wanted(parsed)
    if parsed.labels or parsed.key_prefix or parsed.decode or shardsurvey.holds_shards(parsed.path):
        with _counting("check") as progress:
            result = shardsurvey.survey(wanted, storage, parsed.decode, progress)
    else:
        result = survey.survey(parsed.path)
    for line in result.lines:
        print(line)
    for problem in result.problems[:-1]:
        print(f"lockstep: {problem}", file=sys.stderr)
    if result.problems:
        raise UserError(result.problems[-1])
    return 0


def _index(parsed: argparse.Namespace) -> int:
    from lockstep.data.indexing import forget_folders
    from lockstep.data.layouts import counted, describe_passed_over

    forget_folders(parsed.path)
    index, _ = _open(parsed, needs_labels=True)
    images, classes = counted(len(index), "image"), f"{index.num_classes} classes"
    print(f"{index.shards_taken}, {images}, {classes}, {index.size.sum() / 1e6:.1f} MB")
    if index.passed_over:
        print(describe_passed_over(index.passed_over))
    print(f"the index is in {index.path}")
    return 0


def _count(parsed: argparse.Namespace) -> int:
    print(len(_open(parsed)[0]))
    return 0


def _mean(parsed: argparse.Namespace) -> int:
    from pathlib import Path

    import numpy as np

    from lockstep.data import decode, sweep
    from lockstep.data.layouts import counted

    if not 1 <= parsed.side <= 4096:
        raise UserError(f"--side takes 1 to 4096 pixels, not {parsed.side}")
    decode.check_installed()
    index, storage = _open(parsed)
    with _counting("mean") as progress:
        mean = sweep.mean_image(index, storage, parsed.side, progress)
    target = Path(parsed.out)
    try:
        partial = target.with_name(f"{target.name}.partial")
        with partial.open("wb") as file:
            np.save(file, mean.image, allow_pickle=False)
        partial.rename(target)
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror or error}") from None
    for name in mean.broken[:5]:
        print(f"left out: {name}", file=sys.stderr)
    verb = "does" if len(mean.broken) == 1 else "do"
    broken = f"; {len(mean.broken)} cannot be decoded and {verb} not count" if mean.broken else ""
    print(f"{target} is the mean of {counted(mean.images, 'image')}{broken}")
    return 0


def _open(parsed: argparse.Namespace, needs_labels: bool = False) -> tuple[Index, Storage]:
    from dataclasses import replace

    from lockstep.data.indexing import open_index

    wanted, storage = _wanted(parsed)
    with _counting("index") as progress:
        return open_index(replace(wanted, needs_labels=needs_labels), storage, progress), storage


def _wanted(parsed: argparse.Namespace) -> tuple[Wanted, Storage]:
    from lockstep.data.listing import Wanted
    from lockstep.data.storage import Access, open_storage

    storage = open_storage(Access(endpoint_url=parsed.endpoint_url, anonymous=parsed.anonymous))
    return Wanted(path=parsed.path, label_path=parsed.labels, key_prefix=parsed.key_prefix), storage


@contextmanager
def _counting(name: str) -> Iterator[indexing.Progress]:
    """The same for shards or images that are counted."""
    if not sys.stderr.isatty():
        shown = time.monotonic()

        def show(done: int, total: int) -> None:
            nonlocal shown
            if time.monotonic() - shown >= PLAIN_SECONDS:
                shown = time.monotonic()
                print(f"{name}: {done} of {total}", file=sys.stderr, flush=True)

        yield show
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


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
