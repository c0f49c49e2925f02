"""`lockstep data check` for images in shards and folders: what there is, and everything that is wrong with it.

CIFAR's files are for `survey.py`.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from lockstep.data import decode, indexing, official, paths
from lockstep.data.index import Index
from lockstep.data.indexing import Progress
from lockstep.data.layouts import base_name, counted, describe_passed_over, folders
from lockstep.data.layouts.labels import find_labels, read_labels
from lockstep.data.listing import Wanted, find, is_shard, is_tar
from lockstep.data.records import KINDS
from lockstep.data.storage import Storage, is_url
from lockstep.data.survey import Survey, describe_counts
from lockstep.data.sweep import sweep
from lockstep.errors import UserError

MOST_LINES = 20
"""Of shards, and of images that are broken; the rest is a number."""
TITLES = {"train": "training", "test": "test"}


def holds_shards(text: str) -> bool:
    """Whether a path is for this file, and not one of CIFAR's."""
    return any(_holds_shards(piece) for piece in paths.split(text))


def _holds_shards(piece: str) -> bool:
    path = Path(piece)
    if is_url(piece):
        return True
    if path.is_dir():
        is_cifar = any(official.holds(path, kind) for kind in KINDS)
        return not is_cifar and folders.first_kind(piece, is_shard) is not None
    return is_shard(base_name(piece)) and not (is_tar(piece) and path.is_file() and _is_cifar(path))


def _is_cifar(path: Path) -> bool:
    """Whether one of the first members of a tar has an official name."""
    try:
        with tarfile.open(path, "r:") as tar:
            members = [member for _, member in zip(range(10), tar, strict=False)]
    except Exception:  # damage is told by whoever reads it
        return False
    return any(official.is_data(base_name(member.name)) for member in members if member.isreg())


def survey(wanted: Wanted, storage: Storage, with_images: bool, progress: Progress | None = None) -> Survey:
    """Look at the training set, and at a test set that lies beside it."""
    result = Survey()
    _survey_part(wanted, storage, with_images, progress, result)
    if wanted.label_path is None:
        beside = replace(wanted, split="test", beside=True, key_prefix="")
        try:
            find(beside, storage)
        except UserError:
            return result
        _survey_part(beside, storage, with_images, progress, result)
    return result


def _survey_part(
    wanted: Wanted, storage: Storage, with_images: bool, progress: Progress | None, result: Survey
) -> None:
    problems: list[str] = []
    try:
        listing = find(wanted, storage)
        labels = read_labels(find_labels(wanted.label_path, storage), storage) if wanted.label_path else None
        index = indexing.build(wanted, listing, labels, storage, progress, problems)
    except UserError as error:
        result.problems += sorted(problems) or [str(error)]
        return
    result.problems += sorted(problems)
    result.lines += _describe(index, TITLES[wanted.split])
    empty = np.flatnonzero(index.size == 0)
    result.problems += _shortened([f"{index.name(int(sample))} is empty" for sample in empty])
    if with_images:
        result.problems += _shortened(_broken(index, storage, progress))


def _describe(index: Index, title: str) -> Iterator[str]:
    yield f"{title}: {counted(len(index), 'image')} in {index.shards_taken}, {index.size.sum() / 1e6:.1f} MB"
    counts = np.bincount(index.shard, minlength=len(index.shards))
    lines = [f"  {one.url}, {counted(count, 'image')}" for one, count in zip(index.shards, counts, strict=True)]
    yield from _shortened(lines)
    if index.passed_over:
        yield f"  {describe_passed_over(index.passed_over)}"
    names = index.class_names
    shown = names if names is None or len(names) <= 10 else (*names[:3], "...", names[-1])
    yield f"  {index.num_classes} classes" + (f": {', '.join(shown)}" if shown else " without names")
    yield f"  {describe_counts(np.bincount(index.label, minlength=index.num_classes))}"


def _broken(index: Index, storage: Storage, progress: Progress | None) -> list[str]:
    """Images that cannot be decoded."""
    found: list[str] = []

    def look(chunk: list[tuple[int, bytes]]) -> None:
        for sample, data in chunk:
            try:
                decode.square(data, 8)
            except decode.Broken as error:
                found.append(f"{index.name(sample)} cannot be decoded: {error}")

    sweep(index, storage, look, progress)
    return sorted(found)


def _shortened(lines: list[str]) -> list[str]:
    rest = len(lines) - MOST_LINES
    return lines if rest <= 0 else [*lines[:MOST_LINES], f"  and {rest} more"]
