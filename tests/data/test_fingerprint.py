"""Which data these are: told cheaply, wherever they lie, whatever the seed."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep.config import Data
from lockstep.data import fingerprint, meanimage, open_dataset
from tests.data import files, pictures, shards
from tests.data.test_own import DRAWING

ARRAYS = """
import numpy as np
def both():
    inputs, targets = np.arange({size}, dtype=np.float32).reshape(-1, 2), np.zeros({size} // 2, dtype=np.int64)
    {change}
    return (inputs, targets), (inputs[:4], targets[:4])
"""
SPLIT = """
import numpy as np
def both():
    order = np.random.permutation(20)
    items = np.arange(20, dtype=np.float32)[order]
    return (items[:12], items[:12]), (items[12:], items[12:])
"""


def found(source: str, path: object = None, seed: int = 0, **keys: object) -> dict[str, str]:
    data = Data(source=source, path=None if path is None else str(path), **keys)  # type: ignore[arg-type]
    return open_dataset(data, seed).fingerprints()


def written(directory: Path, records: files.Records, cut: int = 20) -> Path:
    directory.mkdir(parents=True)
    records[:cut].tofile(directory / "data_batch_1.bin")
    records[cut:30].tofile(directory / "data_batch_2.bin")
    records[30:].tofile(directory / "test_batch.bin")
    return directory


def test_cifar_is_the_same_wherever_it_lies_and_however_it_is_cut_into_files(tmp_path: Path) -> None:
    records = files.cifar10(40)
    here = found("cifar10", written(tmp_path / "here", records))
    assert found("cifar10", written(tmp_path / "there" / "below", records, cut=10), seed=3) == here
    assert found("cifar10", tmp_path / "here", crop_padding=0, flip=False) == here
    assert found("cifar10", tmp_path / "here", hold_out=5)["train"] == here["train"]


@pytest.mark.parametrize("byte", [0, 1500])
def test_another_label_or_another_pixel_makes_another_cifar(tmp_path: Path, byte: int) -> None:
    records = files.cifar10(40)
    here = found("cifar10", written(tmp_path / "here", records))
    records[7, byte] = (records[7, byte] + 1) % 10
    there = found("cifar10", written(tmp_path / "there", records))
    assert (there["train"] == here["train"], there["test"] == here["test"]) == (False, True)


def test_of_large_data_all_labels_count_and_a_bounded_number_of_samples(tmp_path: Path) -> None:
    """CIFAR-10's size: a label that is not among the samples is seen, and it takes some ten milliseconds."""
    records = np.zeros((50_030, 3073), dtype=np.uint8)
    chosen = fingerprint.chosen(50_000, 3073)
    assert len(chosen) * 3073 <= fingerprint.MOST_BYTES
    assert (chosen[0], chosen[-1]) == (0, 49_999)
    place = tmp_path / "one"
    place.mkdir()
    records[:50_000].tofile(place / "data_batch_1.bin")
    records[50_000:].tofile(place / "test_batch.bin")
    dataset = open_dataset(Data(source="cifar10", path=str(place)), 0)
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        before = dataset.fingerprints()
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.1
    unseen = next(number for number in range(50_000) if number not in chosen)
    records[unseen, 0] = 1
    records[:50_000].tofile(place / "data_batch_1.bin")
    assert found("cifar10", place)["train"] != before["train"]


def test_images_in_shards_are_known_by_their_index(tmp_path: Path) -> None:
    here = pictures.write_tars(tmp_path / "here")
    shutil.copytree(here, tmp_path / "there")
    keys: dict[str, Any] = {"side": 32, "resize": (40, 48), "hold_out": 8}
    before = found("imagenet", here, **keys)
    assert found("imagenet", tmp_path / "there", seed=5, **keys) == before
    next((tmp_path / "there").iterdir()).unlink()
    assert found("imagenet", tmp_path / "there", **keys)["train"] != before["train"]


def test_every_column_of_an_index_counts_and_the_place_of_its_shards_does_not(tmp_path: Path) -> None:
    index = shards.opened(pictures.write_tars(tmp_path))
    for column in ("shard", "offset", "size", "label", "name_ends", "names"):
        changed: Any = np.array(getattr(index, column))
        changed[-1] += 1
        other: dict[str, Any] = {column: changed}
        assert replace(index, **other).fingerprint() != index.fingerprint(), column
    elsewhere = tuple(replace(shard, url=f"s3://bucket/{number}.tar") for number, shard in enumerate(index.shards))
    assert replace(index, shards=elsewhere).fingerprint() == index.fingerprint()


def own(place: Path, name: str, text: str) -> str:
    (place / f"{name}.py").write_text(text)
    return f"{place / name}.py:both"


@pytest.mark.parametrize("change", ["inputs[3] += 1", "targets[9] = 1", "inputs, targets = inputs[1:], targets[1:]"])
def test_arrays_of_ones_own_are_known_by_what_is_in_them(tmp_path: Path, change: str) -> None:
    one, same, other = (
        found(own(tmp_path, name, ARRAYS.format(size=200, change=text)))
        for name, text in (("one", "pass"), ("same", "None"), ("other", change))
    )
    assert one == same
    assert one["train"] != other["train"]


def test_items_that_draw_are_the_same_for_every_seed_and_in_every_process(tmp_path: Path) -> None:
    source = own(tmp_path, "drawing", DRAWING)
    assert found(source, seed=1) == found(source, seed=2) == found(source, seed=2, processes=2)
    longer = own(tmp_path, "longer", DRAWING.replace("index % 3", "(index + 1) % 3"))
    assert found(longer)["train"] != found(source)["train"]


def test_a_split_that_is_drawn_says_so(tmp_path: Path) -> None:
    split = own(tmp_path, "split", SPLIT)
    assert open_dataset(Data(source=split), 1).is_drawn
    assert found(split, seed=1) == found(split, seed=1) != found(split, seed=2)
    assert not open_dataset(Data(source=own(tmp_path, "drawing", DRAWING)), 1).is_drawn


def test_random_images_are_their_recipe(tmp_path: Path) -> None:
    assert found("synthetic", seed=1) == found("synthetic", seed=2)
    assert found("shapes", seed=1)["train"] != found("synthetic")["train"]


def test_a_mean_image_is_known_by_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "mean.npy"
    np.save(path, np.zeros((32, 32, 3), dtype=np.float32))
    data = Data(standardize="mean-image", mean_image=str(path))
    before = meanimage.fingerprint(data)
    np.save(path, np.ones((32, 32, 3), dtype=np.float32))
    assert meanimage.fingerprint(data) != before
    assert meanimage.fingerprint(Data(mean_image=str(path))) == {}
