"""CIFAR's binary files: records of one label byte and 3072 pixels, channel by channel, row by row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from lockstep.config import Data
from lockstep.data.augment import Augment
from lockstep.data.order import Samples
from lockstep.data.source import Batch, Dataset
from lockstep.errors import UserError

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
RECORD = 1 + PIXELS
NUM_CLASSES = 10

Records = npt.NDArray[np.uint8]


class CifarSource:
    """Records in memory-mapped files: one copy per host, however many workers read it."""

    def __init__(self, files: list[Records], augment: Augment | None) -> None:
        self._files = files
        self._starts = np.cumsum([0] + [len(records) for records in files])
        self._augment = augment

    def __len__(self) -> int:
        return int(self._starts[-1])

    def fetch(self, samples: Samples) -> Batch:
        records = np.empty((len(samples), RECORD), dtype=np.uint8)
        file = np.searchsorted(self._starts, samples.index, side="right") - 1
        for number in np.unique(file):
            here = file == number
            records[here] = self._files[number][samples.index[here] - self._starts[number]]
        images = records[:, 1:].reshape(-1, *SHAPE)
        if self._augment is not None:
            images = self._augment(images, samples)
        return Batch(images=np.ascontiguousarray(images), labels=records[:, 0].astype(np.int64))


def open_cifar10(data: Data, seed: int) -> Dataset:
    """A directory with data_batch_*.bin and test_batch.bin, or the one that holds cifar-10-batches-bin."""
    if data.path is None:
        raise UserError(
            "this recipe reads CIFAR-10 from disk: give its directory with --data DIR, or try --data shapes"
        )
    directory = _find_directory(Path(data.path))
    train = sorted(directory.glob("data_batch_*.bin"))
    test = directory / "test_batch.bin"
    if not train:
        raise UserError(f"{directory} holds no data_batch_*.bin: give the directory of CIFAR-10's binary version")
    if not test.is_file():
        raise UserError(f"{directory} holds no test_batch.bin: copy it there from CIFAR-10's binary version")
    augment = Augment(data, seed)
    return Dataset(
        train=CifarSource([read_records(path) for path in train], augment),
        test=CifarSource([read_records(test)], None),
        num_classes=NUM_CLASSES,
        image_shape=SHAPE,
    )


def _find_directory(path: Path) -> Path:
    if not path.is_dir():
        raise UserError(f"there is no directory {path}: give the directory of CIFAR-10's binary files with --data")
    inner = path / "cifar-10-batches-bin"
    return inner if inner.is_dir() else path


def read_records(path: Path) -> Records:
    """Map a file of records, after checking its size and every label."""
    size = path.stat().st_size
    if size == 0:
        raise UserError(f"{path} is empty: download it again")
    if size % RECORD:
        raise UserError(
            f"{path} is truncated: record {size // RECORD} has {size % RECORD} of {RECORD} bytes; download it again"
        )
    records: Records = np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, RECORD)
    wrong = np.flatnonzero(records[:, 0] >= NUM_CLASSES)
    if wrong.size:
        raise UserError(
            f"{path}, record {wrong[0]}: label {records[wrong[0], 0]} is out of range 0 to {NUM_CLASSES - 1}; "
            "this is not a CIFAR-10 file, or it is damaged"
        )
    return records
