"""How CIFAR's official files, folders and archives are called, and how its classes are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from lockstep.data import pickles
from lockstep.data.records import CIFAR10, CIFAR100, Kind
from lockstep.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Names:
    train: re.Pattern[str]
    test: re.Pattern[str]
    wanted: tuple[str, str]
    """The names of training and test files, for sentences."""
    folders: tuple[str, ...]
    archives: tuple[str, ...]
    texts: dict[str, str]
    """The file with the names of the classes, by the label that they belong to."""
    meta: str
    """The pickle with the same names."""


NAMES = {
    CIFAR10: Names(
        train=re.compile(r"data_batch_(?P<number>\d{1,6})(\.bin)?"),
        test=re.compile(r"test_batch(\.bin)?"),
        wanted=("data_batch_*.bin", "test_batch.bin"),
        folders=("cifar-10-batches-bin", "cifar-10-batches-py"),
        archives=("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"),
        texts={"label": "batches.meta.txt"},
        meta="batches.meta",
    ),
    CIFAR100: Names(
        train=re.compile(r"train(\.bin)?"),
        test=re.compile(r"test(\.bin)?"),
        wanted=("train.bin", "test.bin"),
        folders=("cifar-100-binary", "cifar-100-python"),
        archives=("cifar-100-binary.tar.gz", "cifar-100-python.tar.gz"),
        texts={"coarse label": "coarse_label_names.txt", "fine label": "fine_label_names.txt"},
        meta="meta",
    ),
}

META_KEYS = {"label": "label_names", "coarse label": "coarse_label_names", "fine label": "fine_label_names"}
"""Where a pickle has the names of the classes."""

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def is_data(name: str) -> bool:
    return any(names.train.fullmatch(name) or names.test.fullmatch(name) for names in NAMES.values())


def is_test(name: str) -> bool:
    return any(names.test.fullmatch(name) for names in NAMES.values())


def is_meta(name: str) -> bool:
    """Whether a file says how the classes are called."""
    return any(name in (names.meta, *names.texts.values()) for names in NAMES.values())


def files(directory: Path, pattern: re.Pattern[str]) -> list[Path]:
    """The files whose name fits, in the order of their numbers; where both versions lie there, the binary one."""
    found: dict[int, Path] = {}
    for path in sorted(directory.iterdir()):
        if (match := pattern.fullmatch(path.name)) and path.is_file():
            found[number(match)] = path  # `x.bin` comes after `x`
    return [found[key] for key in sorted(found)]


def number(match: re.Match[str]) -> int:
    """The number in a file's name; 0 where there is only one such file."""
    return int(match.groupdict().get("number") or 0)


def holds(directory: Path, kind: Kind) -> bool:
    """Whether a directory has a data set, by the names of what is in it."""
    names = NAMES[kind]
    inside = any((directory / name).exists() for name in (*names.folders, *names.archives))
    return inside or bool(files(directory, names.train) or files(directory, names.test))


def class_names(directories: list[Path], kind: Kind, label: str) -> tuple[str, ...] | None:
    """The names of the classes, if they lie in one of the directories and there are as many as classes."""
    num_classes = kind.limits[kind.labels.index(label)]
    for directory in directories:
        for names in (_names_in_text(directory, kind, label), _names_in_pickle(directory, kind, label)):
            if names is not None and len(names) == num_classes:
                return names
    return CIFAR10_CLASSES if kind is CIFAR10 else None


def _names_in_text(directory: Path, kind: Kind, label: str) -> tuple[str, ...] | None:
    try:
        text = (directory / NAMES[kind].texts[label]).read_text(errors="replace")
    except OSError:
        return None
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def _names_in_pickle(directory: Path, kind: Kind, label: str) -> tuple[str, ...] | None:
    try:
        data = (directory / NAMES[kind].meta).read_bytes()
        return pickles.class_names(pickles.load(data, NAMES[kind].meta), META_KEYS[label])
    except (OSError, UserError):
        return None
