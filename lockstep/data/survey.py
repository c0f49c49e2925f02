"""`lockstep data check` for CIFAR: what a path holds, file by file, and what is wrong with each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lockstep.data import layout, official, paths
from lockstep.data.convert import format_of, mapped, unpacked
from lockstep.data.records import (
    KINDS,
    NOT_SHARED,
    File,
    Kind,
    Records,
    describe_shared,
    guess_kind,
    map_bytes,
    read_records,
    refuse_copies,
    shared,
)
from lockstep.errors import UserError


@dataclass
class Part:
    """The training or the test files of a data set."""

    title: str
    counts: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    """Images by class, for each label."""
    files: list[tuple[File, Records]] = field(default_factory=list)
    """What could be read."""

    @property
    def images(self) -> int:
        return sum(len(records) for _, records in self.files)


@dataclass
class Survey:
    lines: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def survey(text: str) -> Survey:
    """Look at everything below a path."""
    result = Survey()
    for kind in _kinds(text, result.problems):
        with layout.noted(result.problems):
            _describe(layout.find(text, kind, result.problems), kind, result)
    return result


def _kinds(text: str, problems: list[str]) -> list[Kind]:
    """The data sets that a path holds, by the names of files, or by their labels."""
    found: list[Kind] = []
    with layout.noted(problems):
        for path in paths.expand(text):
            with layout.noted(problems):
                found += [kind for kind in _kinds_of(path) if kind not in found]
    return found


def _kinds_of(path: Path) -> Iterator[Kind]:
    if path.is_dir() or format_of(path) == "archive":
        directory = path if path.is_dir() else unpacked(path)
        kinds = [kind for kind in KINDS if official.holds(directory, kind)]
        if not kinds:
            wanted = " or ".join(f"{official.NAMES[kind].wanted[0]} ({kind.title})" for kind in KINDS)
            raise UserError(f"{path} holds neither {wanted}")
        yield from kinds
    elif not official.is_meta(path.name):
        yield guess_kind(map_bytes(mapped(path, str(path))))


def _describe(found: layout.Found, kind: Kind, result: Survey) -> None:
    parts = [(Part("training"), found.train), (Part("test"), found.test)]
    lines = [line for part, files in parts for file in files for line in _count(file, kind, part, result.problems)]
    for part, _ in parts:
        try:
            refuse_copies(part.files, kind)
        except UserError as error:
            result.problems.append(str(error))
    if (both := shared(parts[0][0].files, parts[1][0].files, kind)) is not None:
        result.problems.append(f"{describe_shared(*both)}: {NOT_SHARED}")
    result.lines.append(f"{kind.title}: " + ", ".join(f"{part.images} {part.title} images" for part, _ in parts))
    result.lines += lines
    for label in kind.labels:
        names = official.class_names(found.directories, kind, label)
        result.lines.append(f"{label}: {_describe_names(names, kind, label)}")
        result.lines += [f"  {part.title}: {describe_counts(part.counts[label])}" for part, _ in parts if part.images]


def _count(file: File, kind: Kind, part: Part, problems: list[str]) -> Iterator[str]:
    try:
        records = read_records(file, kind)
    except UserError as error:
        problems.append(str(error))
        return
    yield f"  {part.title}: {file.name}, {len(records)} images"
    part.files.append((file, records))
    for position, label in enumerate(kind.labels):
        counts = np.bincount(records[:, position], minlength=kind.limits[position])
        part.counts[label] = part.counts.get(label, 0) + counts


def _describe_names(names: tuple[str, ...] | None, kind: Kind, label: str) -> str:
    number = kind.limits[kind.labels.index(label)]
    if names is None:
        return f"{number} classes without names"
    shown = names if number <= 10 else (*names[:3], "...", names[-1])
    return f"{number} classes: {', '.join(shown)}"


def describe_counts(counts: npt.NDArray[np.int64]) -> str:
    """How evenly images are spread over classes."""
    missing = int((counts == 0).sum())
    least, most = int(counts.min()), int(counts.max())
    text = f"{most} images of each class" if least == most else f"{least} to {most} images of a class"
    return text + (f", {missing} classes have none" if missing else "")
