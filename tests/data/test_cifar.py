"""CIFAR-10's binary files: the layout of a record, and every way in which a file can be wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lockstep.config import Data
from lockstep.data import open_dataset
from lockstep.data.source import in_order
from lockstep.errors import UserError


def write(directory: Path, train: int = 30, test: int = 10) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Three training files and a test file of random records; returns the training records."""
    directory.mkdir(parents=True, exist_ok=True)
    records = np.random.RandomState(0).randint(0, 256, size=(train + test, 3073)).astype(np.uint8)
    records[:, 0] %= 10
    for number in range(3):
        records[number * train // 3 : (number + 1) * train // 3].tofile(directory / f"data_batch_{number + 1}.bin")
    records[train:].tofile(directory / "test_batch.bin")
    return records[:train]


def test_a_record_is_a_label_and_channels_of_rows(tmp_path: Path) -> None:
    """F1: 3073 bytes, label first, then 1024 red, 1024 green, 1024 blue, row by row; over several files."""
    records = write(tmp_path / "cifar-10-batches-bin")
    for path in (tmp_path, tmp_path / "cifar-10-batches-bin"):
        dataset = open_dataset(Data(path=str(path), crop_padding=0, flip=False), seed=0)
        assert (len(dataset.train), len(dataset.test)) == (30, 10)
        batch = dataset.train.fetch(in_order(0, 30))
        assert batch.labels.tolist() == records[:, 0].tolist()
        assert batch.images.shape == (30, 3, 32, 32)
        assert batch.images[17, 1, 5, 9] == records[17, 1 + 1024 + 5 * 32 + 9]


def damaged(directory: Path, how: str) -> str:
    write(directory)
    victim = directory / "data_batch_2.bin"
    if how == "truncated":
        victim.write_bytes(victim.read_bytes()[:-5])
        return r"data_batch_2\.bin is truncated: record 9 has 3068 of 3073 bytes"
    if how == "label":
        data = bytearray(victim.read_bytes())
        data[3073 * 4] = 10
        victim.write_bytes(data)
        return r"data_batch_2\.bin, record 4: label 10 is out of range"
    if how == "empty":
        victim.write_bytes(b"")
        return r"data_batch_2\.bin is empty"
    if how == "no test":
        (directory / "test_batch.bin").unlink()
        return r"holds no test_batch\.bin"
    for path in directory.glob("data_batch_*"):
        path.unlink()
    return r"holds no data_batch_\*\.bin"


@pytest.mark.parametrize("how", ["truncated", "label", "empty", "no test", "no train"])
def test_damaged_files_are_named(tmp_path: Path, how: str) -> None:
    sentence = damaged(tmp_path, how)
    with pytest.raises(UserError, match=sentence):
        open_dataset(Data(path=str(tmp_path)), seed=0)


def test_missing_data_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--data"):
        open_dataset(Data(path=None), seed=0)
    with pytest.raises(UserError, match="there is no .*nothing"):
        open_dataset(Data(path=str(tmp_path / "nothing")), seed=0)
