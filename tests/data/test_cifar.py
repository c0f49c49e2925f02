"""CIFAR-10 and CIFAR-100: the layout of a record, every version of the files, and all that can be wrong."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from lockstep.config import Data
from lockstep.data import open_dataset
from lockstep.data.source import Dataset, in_order
from lockstep.errors import UserError
from tests.data import files

PLAIN = {"crop_padding": 0, "flip": False}


def opened(path: Path | str, source: str = "cifar10", **options: object) -> Dataset:
    return open_dataset(Data(source=source, path=str(path), **{**PLAIN, **options}), seed=0)  # type: ignore[arg-type]


def write(directory: Path, train: int = 30, test: int = 10) -> files.Records:
    """Three training files and a test file of random records; returns the training records."""
    directory.mkdir(parents=True, exist_ok=True)
    records = files.cifar10(train + test)
    for number in range(3):
        records[number * train // 3 : (number + 1) * train // 3].tofile(directory / f"data_batch_{number + 1}.bin")
    records[train:].tofile(directory / "test_batch.bin")
    return records[:train]


def write100(directory: Path) -> files.Records:
    directory.mkdir(parents=True, exist_ok=True)
    records = files.cifar100(40)
    records[:30].tofile(directory / "train.bin")
    records[30:].tofile(directory / "test.bin")
    return records[:30]


def test_a_record_is_a_label_and_channels_of_rows(tmp_path: Path) -> None:
    """F1: 3073 bytes, label first, then 1024 red, 1024 green, 1024 blue, row by row; over several files."""
    records = write(tmp_path / "cifar-10-batches-bin")
    for path in (tmp_path, tmp_path / "cifar-10-batches-bin"):
        dataset = opened(path)
        assert (len(dataset.train), len(dataset.test)) == (30, 10)
        batch = dataset.train.fetch(in_order(0, 30))
        assert batch.labels.tolist() == records[:, 0].tolist()
        assert batch.images.shape == (30, 3, 32, 32)
        assert batch.images[17, 1, 5, 9] == records[17, 1 + 1024 + 5 * 32 + 9]


def test_a_record_of_cifar100_has_two_labels_and_pixels_from_byte_2(tmp_path: Path) -> None:
    """F2 F3: the fine label is the target, or the coarse one."""
    records = write100(tmp_path)
    fine, coarse = opened(tmp_path, "cifar100"), opened(tmp_path, "cifar100", labels="coarse")
    assert (fine.num_classes, coarse.num_classes) == (100, 20)
    for dataset, position in ((fine, 1), (coarse, 0)):
        batch = dataset.train.fetch(in_order(0, 30))
        assert batch.labels.tolist() == records[:, position].tolist()
        assert batch.images[17, 2, 31, 9] == records[17, 2 + 2 * 1024 + 31 * 32 + 9]


@pytest.mark.parametrize("packed", ["folder", "parent", "tar.gz", "tar", "parent of tar.gz"])
@pytest.mark.parametrize("form", ["binary", "python"])
@pytest.mark.parametrize("source", ["cifar10", "cifar100"])
def test_every_version_gives_the_same_samples(tmp_path: Path, source: str, form: str, packed: str) -> None:
    """F4 F5: the binary and the python files, unpacked or not, with the names of the classes."""
    make = files.cifar10 if source == "cifar10" else files.cifar100
    train, test = make(30), make(10, seed=1)
    folder, contents = files.version(source, form, train, test)
    number = source.removeprefix("cifar")
    if packed in ("folder", "parent"):
        path = files.write_folder(tmp_path, folder, contents)
    else:
        suffix = packed.removeprefix("parent of ")
        path = tmp_path / f"cifar-{number}-{form}.{suffix}"
        files.write_tar(path, folder, contents, "w" if packed == "tar" else "w:gz")
    dataset = opened(path.parent if packed.startswith("parent") else path, source)
    for part, records in ((dataset.train, train), (dataset.test, test)):
        batch = part.fetch(in_order(0, len(records)))
        assert len(part) == len(records)
        assert batch.images.tobytes() == records[:, -3072:].tobytes()
        assert batch.labels.tolist() == records[:, -3073].tolist()
    assert dataset.class_names is not None
    assert dataset.class_names[:2] == (("class 0", "class 1") if source == "cifar10" else ("fine 0", "fine 1"))


def test_names_of_coarse_classes_and_the_names_that_everyone_knows(tmp_path: Path) -> None:
    folder, contents = files.version("cifar100", "binary", files.cifar100(2), files.cifar100(2))
    path = files.write_folder(tmp_path / "a", folder, contents)
    assert opened(path, "cifar100", labels="coarse").class_names == tuple(files.COARSE)
    (path / "fine_label_names.txt").unlink()
    assert opened(path, "cifar100").class_names is None
    write(tmp_path / "b")
    names = opened(tmp_path / "b").class_names
    assert names is not None
    assert names[3:6] == ("cat", "deer", "dog")


def test_globs_lists_and_single_files(tmp_path: Path) -> None:
    """F5: the test set is found beside single files, and never trains."""
    records = write(tmp_path)
    whole = opened(f"{tmp_path}/*.bin")
    assert (len(whole.train), len(whole.test)) == (30, 10)
    two = opened(f"{tmp_path}/data_batch_3.bin, {tmp_path}/data_batch_1.bin")
    assert (len(two.train), len(two.test)) == (20, 10)
    assert two.train.fetch(in_order(0, 1)).labels[0] == records[20, 0]
    assert len(opened(f"{tmp_path}/data_batch_[12].bin").train) == 20


@pytest.mark.parametrize("beside", ["archive", "other version", "copy"])
@pytest.mark.parametrize("source", ["cifar10", "cifar100"])
def test_samples_that_would_count_twice_are_refused(tmp_path: Path, source: str, beside: str) -> None:
    """F15 F69: a glob catches a folder and its archive, or both versions; both files are named."""
    make = files.cifar10 if source == "cifar10" else files.cifar100
    folder, contents = files.version(source, "binary", make(30), make(10, seed=1))
    first = files.write_folder(tmp_path, folder, contents)
    if beside == "archive":
        second = files.write_tar(tmp_path / "z.tar.gz", folder, contents)
    elif beside == "copy":
        second = files.write_folder(tmp_path / "z", folder, contents)
    else:
        second = files.write_folder(tmp_path, *files.version(source, "python", make(30), make(10, seed=1)))
    for path in (f"{tmp_path}/*", f"{first},{second}"):
        with pytest.raises(UserError, match=r"holds the same records as .*: give only one") as told:
            opened(path, source)
        assert str(first) in str(told.value)
        assert str(second) in str(told.value)
    with pytest.raises(UserError, match="the same records"):
        opened(first, source, eval_path=f"{first}/test*.bin,{second}")


def test_files_that_differ_in_a_pixel_are_no_copies(tmp_path: Path) -> None:
    records = files.cifar10(5)
    records.tofile(tmp_path / "one.bin")
    records[-1, -1] ^= 1
    records.tofile(tmp_path / "two.bin")
    assert len(opened(f"{tmp_path}/*.bin", hold_out=1).train) == 9


def test_a_file_that_both_sets_have_is_known(tmp_path: Path) -> None:
    """F6: under another name, in another version, or named twice; samples that are held out are the training set's."""
    write(tmp_path)
    assert opened(tmp_path).overlap is None
    where = "data_batch_3.bin of the training set holds the same records as .*test_batch.bin of the test set"
    shutil.copy(tmp_path / "test_batch.bin", tmp_path / "data_batch_3.bin")
    assert re.search(where, str(opened(tmp_path).overlap))
    assert opened(tmp_path, hold_out=5).overlap is None
    records = np.fromfile(tmp_path / "test_batch.bin", np.uint8).reshape(-1, 3073)
    (tmp_path / "mine").write_bytes(files.pickle10(records))
    apart = opened(tmp_path / "data_batch_[13].bin", eval_path=str(tmp_path / "mine"))
    assert re.search(r"data_batch_3.bin of the .* as .*/mine of the test set", str(apart.overlap))
    same = opened(tmp_path, eval_path=str(tmp_path / "data_batch_1.bin")).overlap
    assert same == f"{tmp_path}/data_batch_1.bin is in the training set and in the test set, " + (
        "so the test is on what was trained"
    )


def test_a_test_set_of_its_own(tmp_path: Path) -> None:
    """F5: `--eval-data`; a file that is called a test set trains nothing, here either."""
    write(tmp_path / "train")
    write(tmp_path / "test", train=15, test=5)
    assert len(opened(tmp_path / "train", eval_path=str(tmp_path / "test")).test) == 5
    (tmp_path / "test/test_batch.bin").rename(tmp_path / "mine.bin")
    other = opened(tmp_path / "train", eval_path=str(tmp_path / "mine.bin"))
    assert (len(other.train), len(other.test)) == (30, 5)
    assert len(opened(tmp_path / "train", eval_path=str(tmp_path / "test")).test) == 15
    with pytest.raises(UserError, match="only a test set"):
        opened(tmp_path / "train/test_batch.bin")


def damaged(directory: Path, how: str) -> str:
    write(directory)
    victim = directory / "data_batch_2.bin"
    if how == "truncated":
        victim.write_bytes(victim.read_bytes()[:-5])
        return r"data_batch_2\.bin is truncated: record 9 has 3068 of 3073 bytes"
    if how == "text":
        victim.write_text("n01440764/one.jpg 0\n" * 400)
        return r"data_batch_2\.bin is not a CIFAR-10 file: neither its size nor its labels fit; give the directory"
    if how == "short text":
        victim.write_text("n01440764/one.jpg 0\n")
        return r"data_batch_2\.bin is not a CIFAR-10 file"
    if how == "first record truncated":
        victim.write_bytes(victim.read_bytes()[:500])
        return r"data_batch_2\.bin is truncated: record 0 has 500 of 3073 bytes"
    if how == "label":
        data = bytearray(victim.read_bytes())
        data[3073 * 4] = 10
        victim.write_bytes(data)
        return r"data_batch_2\.bin, record 4: label 10 is out of range"
    if how == "empty":
        victim.write_bytes(b"")
        return r"data_batch_2\.bin is empty"
    if how == "page":
        victim.write_bytes(b"\n<!DOCTYPE html><html><body>404 Not Found</body></html>")
        return r"data_batch_2\.bin is a web page"
    if how == "gap":
        victim.unlink()
        return "holds data_batch_3 but no data_batch_2"
    if how == "no test":
        (directory / "test_batch.bin").unlink()
        return r"holds no test_batch\.bin"
    for path in directory.glob("*"):
        path.unlink()
    return r"holds no data_batch_\*\.bin"


@pytest.mark.parametrize(
    "how",
    [
        *("truncated", "first record truncated", "text", "short text", "label", "empty", "page", "gap", "no test"),
        "nothing",
    ],
)
def test_damaged_files_are_named(tmp_path: Path, how: str) -> None:
    """F6."""
    sentence = damaged(tmp_path, how)
    with pytest.raises(UserError, match=sentence):
        opened(tmp_path)


@pytest.mark.parametrize(("position", "what"), [(0, "coarse label 20"), (1, "fine label 100")])
def test_both_labels_of_cifar100_are_checked(tmp_path: Path, position: int, what: str) -> None:
    """F6: whichever of them is the target."""
    write100(tmp_path)
    data = bytearray((tmp_path / "test.bin").read_bytes())
    data[3074 * 7 + position] = (20, 100)[position]
    (tmp_path / "test.bin").write_bytes(data)
    with pytest.raises(UserError, match=f"test.bin, record 7: {what} is out of range"):
        opened(tmp_path, "cifar100")


def both_divide(kind: str) -> bytes:
    """A file whose size is a whole number of records of either kind."""
    records = files.cifar10(3074) if kind == "cifar10" else files.cifar100(3073)
    return records.tobytes()


@pytest.mark.parametrize("size", ["one divides", "both divide", "neither divides"])
@pytest.mark.parametrize(("wanted", "given"), [("cifar10", "cifar100"), ("cifar100", "cifar10")])
def test_a_file_of_the_other_data_set_is_recognised(tmp_path: Path, wanted: str, given: str, size: str) -> None:
    """F6: by its size, or by its labels where the size says nothing."""
    path = tmp_path / "some.bin"
    data = both_divide(given)
    path.write_bytes(data if size == "both divide" else data[: (3073 if given == "cifar10" else 3074) * 9])
    if size == "neither divides":
        path.write_bytes(path.read_bytes()[:-100])
    name = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
    with pytest.raises(UserError, match=f"some.bin is a {name[given]} file, but {name[wanted]} is wanted.*{given}"):
        opened(path, wanted, eval_path=str(path))


def test_a_directory_of_the_other_data_set_is_recognised(tmp_path: Path) -> None:
    """F6."""
    write100(tmp_path)
    with pytest.raises(UserError, match="holds CIFAR-100, but CIFAR-10 is wanted"):
        opened(tmp_path)


def test_missing_data_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--data"):
        open_dataset(Data(path=None), seed=0)
    with pytest.raises(UserError, match=r"there is no .*nothing"):
        opened(tmp_path / "nothing")
    with pytest.raises(UserError, match="no file fits this pattern"):
        opened(tmp_path / "*.bin")


def test_an_unknown_source_lists_the_known_ones() -> None:
    """F7."""
    with pytest.raises(UserError, match=r"known are cifar10, cifar100, .*imagenet, .*shapes"):
        open_dataset(Data(source="mnist"), seed=0)


def test_records_are_read_without_a_copy_of_their_own(tmp_path: Path) -> None:
    write(tmp_path)
    from lockstep.data.records import CIFAR10, File, read_records

    records = read_records(File(tmp_path / "test_batch.bin", "test"), CIFAR10)
    assert isinstance(records, np.memmap)
    assert not records.flags.owndata
    assert not records.flags.writeable


@pytest.mark.parametrize("picture", ["cat/1.png", "train/cat/1.JPG"])
def test_folders_of_images_need_a_recipe_for_them(tmp_path: Path, picture: str) -> None:
    (tmp_path / picture).parent.mkdir(parents=True)
    (tmp_path / picture).touch()
    with pytest.raises(UserError, match=r"folders of images, and this recipe reads CIFAR-10: .* imagenet-resnet50$"):
        open_dataset(Data(source="cifar10", path=str(tmp_path)), 0)
