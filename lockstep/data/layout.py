"""Which files below a path are for training and which for the test: directories, archives, files and globs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from lockstep.data import official, paths
from lockstep.data.convert import format_of, mapped, unpacked
from lockstep.data.official import NAMES
from lockstep.data.records import KINDS, File, Kind
from lockstep.errors import UserError


@dataclass
class Found:
    """The files of a path."""

    train: list[File] = field(default_factory=list)
    test: list[File] = field(default_factory=list)
    directories: list[Path] = field(default_factory=list)
    """Where the names of the classes, or a test set, may lie beside single files."""

    def add(self, other: Found) -> None:
        self.train += other.train
        self.test += other.test
        self.directories += [one for one in other.directories if one not in self.directories]


def find(text: str, kind: Kind) -> Found:
    """The training and test files below all parts of a path; what has the name of a test file never trains."""
    found = Found()
    try:
        for path in paths.expand(text):
            found.add(_in_directory(path, kind) if path.is_dir() else _in_file(path, kind))
    except OSError as error:
        raise UserError(f"cannot read {error.filename or text} ({error.strerror or error})") from None
    return found


def beside(found: Found, kind: Kind) -> list[File]:
    """The test files that lie beside single training files."""
    tests = [path for directory in found.directories for path in official.files(directory, NAMES[kind].test)]
    return [mapped(path, str(path)) for path in tests]


def _in_directory(directory: Path, kind: Kind, title: str | None = None) -> Found:
    """The files with the official names, here, in the official folder, or in the official archive."""
    names = NAMES[kind]
    train, test = (official.files(directory, pattern) for pattern in (names.train, names.test))
    if train or test:
        _refuse_gaps(title or str(directory), train, kind)
        prefix = f"{title}, " if title else f"{directory}{os.sep}"
        found = [[mapped(path, f"{prefix}{path.name}") for path in part] for part in (train, test)]
        return Found(found[0], found[1], [directory])
    for name in (*names.folders, *names.archives):
        if (directory / name).exists():
            inner = directory / name
            return _in_directory(inner, kind) if inner.is_dir() else _in_file(inner, kind)
    raise _nothing_in(directory, title or str(directory), kind)


def _in_file(path: Path, kind: Kind) -> Found:
    """A file that was named: an archive, or training data unless it has the name of a test file."""
    if format_of(path) == "archive":
        return _in_directory(unpacked(path), kind, title=str(path))
    if official.is_meta(path.name) or path.suffix == ".html":  # a glob over everything takes these along
        return Found(directories=[path.parent])
    file = [mapped(path, str(path))]
    if official.is_test(path.name):
        return Found(test=file, directories=[path.parent])
    return Found(train=file, directories=[path.parent])


def _refuse_gaps(title: str, train: list[Path], kind: Kind) -> None:
    """A missing number is a copy that did not finish."""
    matches = [NAMES[kind].train.fullmatch(path.name) for path in train]
    numbers = sorted(official.number(match) for match in matches if match)
    for before, after in zip([0, *numbers], numbers, strict=False):
        if after > before + 1:
            raise UserError(
                f"{title} holds data_batch_{after} but no data_batch_{before + 1}: copy it there, or name the files "
                "that you mean, as in --data 'DIR/data_batch_[12].bin'"
            )


def _nothing_in(directory: Path, title: str, kind: Kind) -> UserError:
    for other in KINDS:
        if other is not kind and official.holds(directory, other):
            return UserError(
                f"{title} holds {other.title}, but {kind.title} is wanted: give {kind.title}'s files with --data, or a "
                f"recipe for {other.title} (--set data.source={other.source})"
            )
    return UserError(
        f"{title} holds no {NAMES[kind].wanted[0]}: give the directory or the archive of {kind.title}, or download it "
        f"with `lockstep data get {kind.source} DIR`"
    )
