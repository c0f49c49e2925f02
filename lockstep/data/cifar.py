"""CIFAR-10 and CIFAR-100, from whatever a path holds of them.

The layout of records is in `records`, where files lie in `layout`, other versions than the binary one in `convert`.
"""

from __future__ import annotations

import numpy as np

from lockstep.config import Data
from lockstep.data import fingerprint, layout, official
from lockstep.data.order import Indices, Samples
from lockstep.data.records import (
    CIFAR10,
    CIFAR100,
    SHAPE,
    File,
    Kind,
    Records,
    describe_shared,
    read_records,
    refuse_copies,
    shared,
)
from lockstep.data.source import Batch, Dataset
from lockstep.errors import UserError


class CifarSource:
    """Records in memory-mapped files: one copy per host, however many workers read it."""

    def __init__(self, files: list[Records], kind: Kind, label: int) -> None:
        self._files = files
        self._starts = np.cumsum([0] + [len(records) for records in files])
        self._kind, self._label = kind, label

    def __len__(self) -> int:
        return int(self._starts[-1])

    def fetch(self, samples: Samples) -> Batch:
        records = self._records(samples.index)
        images = np.ascontiguousarray(records[:, len(self._kind.labels) :]).reshape(-1, *SHAPE)
        return Batch(images=images, labels=records[:, self._label].astype(np.int64))

    def fingerprint(self) -> str:
        """All labels, which have been read to be checked, and some of the records, however they lie in files."""
        labels = np.concatenate([records[:, : len(self._kind.labels)] for records in self._files])
        return fingerprint.of_arrays(labels, self._records(fingerprint.chosen(len(self), self._kind.record)))

    def _records(self, index: Indices) -> Records:
        records = np.empty((len(index), self._kind.record), dtype=np.uint8)
        file = np.searchsorted(self._starts, index, side="right") - 1
        for number in np.unique(file):
            here = file == number
            records[here] = self._files[number][index[here] - self._starts[number]]
        return records


def open_cifar10(data: Data, seed: int) -> Dataset:
    return _open(data, CIFAR10, "label")


def open_cifar100(data: Data, seed: int) -> Dataset:
    return _open(data, CIFAR100, f"{data.labels} label")


def _open(data: Data, kind: Kind, label: str) -> Dataset:
    if data.path is None:
        raise UserError(
            f"this recipe reads {kind.title} from disk: give its directory or archive with --data PATH, download it "
            f"with `lockstep data get {kind.source} DIR`, or try --data shapes"
        )
    found = layout.find(data.path, kind)
    if not found.train:
        wanted = official.NAMES[kind].wanted[0]
        raise UserError(f"{data.path} holds no {wanted}, only a test set: add the training set, or use --eval-data")
    position = kind.labels.index(label)

    def source(files: list[tuple[File, Records]]) -> CifarSource:
        return CifarSource([records for _, records in files], kind, position)

    train = _read(found.train, kind)  # what is wrong with these files comes before what is missing beside them
    test = _read([] if data.hold_out else _test_files(data, found, kind), kind)
    both = shared(train, test, kind)
    return Dataset(
        train=source(train),
        test=source(test),
        overlap=None if both is None else describe_shared(*both),
        num_classes=kind.limits[position],
        image_shape=SHAPE,
        class_names=official.class_names(found.directories, kind, label),
    )


def _read(files: list[File], kind: Kind) -> list[tuple[File, Records]]:
    found = [(file, read_records(file, kind)) for file in files]
    refuse_copies(found, kind)
    return found


def _test_files(data: Data, found: layout.Found, kind: Kind) -> list[File]:
    """From `eval_path` (all of it, if nothing there has the name of a test set), or beside the training set."""
    if data.eval_path is not None:
        apart = layout.find(data.eval_path, kind)
        return apart.test or apart.train
    test = found.test or layout.beside(found, kind)
    if not test:
        raise UserError(
            f"{data.path} holds no {official.NAMES[kind].wanted[1]}: copy it there, give the test set with "
            "--eval-data, or keep a part of the training set for it with --hold-out N"
        )
    return test
