"""Which files below a path are for training and which for the test: directories, archives, files and globs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lockstep.data import official, paths
from lockstep.data.convert import format_of, mapped, unpacked
from lockstep.data.layouts import is_image
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


def find(text: str, kind: Kind, problems: list[str] | None = None) -> Found:
    """The training and test files below all parts of a path; what has the name of a test file never trains. What is
    wrong with a file is raised, or, where `problems` is given, noted there, and the file left out."""
    found = Found()
    try:
        for path in paths.expand(text):
            with noted(problems):
                found.add(_in_directory(path, kind, problems) if path.is_dir() else _in_file(path, kind, problems))
    except OSError as error:
        raise UserError(f"cannot read {error.filename or text} ({error.strerror or error})") from None
    return found


def beside(found: Found, kind: Kind) -> list[File]:
    """The test files that lie beside single training files."""
    tests = [path for directory in found.directories for path in official.files(directory, NAMES[kind].test)]
    return [mapped(path, str(path)) for path in tests]


@contextlib.contextmanager
def noted(problems: list[str] | None) -> Iterator[None]:
    """Note what is wrong, once, and go on; raise it where there is no list for it."""
    try:
        yield
    except UserError as error:
        if problems is None:
            raise
        if str(error) not in problems:
            problems.append(str(error))


def _mapped(found: list[Path], prefix: str, problems: list[str] | None) -> list[File]:
    files: list[File] = []
    for path in found:
        with noted(problems):
            files.append(mapped(path, f"{prefix}{path.name}"))
    return files


def _in_directory(directory: Path, kind: Kind, problems: list[str] | None, title: str | None = None) -> Found:
    """The files with the official names, here, in the official folder, or in the official archive."""
    names = NAMES[kind]
    train, test = (official.files(directory, pattern) for pattern in (names.train, names.test))
    if train or test:
        with noted(problems):
            _refuse_gaps(title or str(directory), train, kind)
        prefix = f"{title}, " if title else f"{directory}{os.sep}"
        return Found(_mapped(train, prefix, problems), _mapped(test, prefix, problems), [directory])
    for name in (*names.folders, *names.archives):
        if (directory / name).exists():
            inner = directory / name
            return _in_directory(inner, kind, problems) if inner.is_dir() else _in_file(inner, kind, problems)
    raise _nothing_in(directory, title or str(directory), kind)


def _in_file(path: Path, kind: Kind, problems: list[str] | None) -> Found:
    """A file that was named: an archive, or training data unless it has the name of a test file."""
    if format_of(path) == "archive":
        return _in_directory(unpacked(path), kind, problems, title=str(path))
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
    if _holds_folders_of_images(directory):
        return UserError(
            f"{title} holds folders of images, and this recipe reads {kind.title}: give a recipe for large images, "
            "such as imagenet-resnet50"
        )
    return UserError(
        f"{title} holds no {NAMES[kind].wanted[0]}: give the directory or the archive of {kind.title}, or download it "
        f"with `lockstep data get {kind.source} DIR`"
    )


def _holds_folders_of_images(directory: Path) -> bool:
    """A folder for each class, perhaps below `train/`: no deeper, since whatever was named may be large."""
    return any(is_image(path.name) for depth in ("*/*", "*/*/*") for path in directory.glob(depth))
