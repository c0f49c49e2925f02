"""`lockstep data check`: what is there, and everything that is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lockstep import cli
from tests.data import files
from tests.data.test_cifar import write, write100


def check(path: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = cli.main(["data", "check", str(path)])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_directory_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path)
    code, out, err = check(tmp_path, capsys)
    assert (code, err) == (0, "")
    assert "CIFAR-10: 30 training images, 10 test images" in out
    assert "data_batch_2.bin, 10 images" in out
    assert "10 classes: airplane, automobile" in out
    assert " images of a class" in out


def test_both_data_sets_below_one_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "cifar-10-batches-bin")
    write100(tmp_path / "cifar-100-binary")
    code, out, _ = check(tmp_path, capsys)
    assert code == 0
    assert out.index("CIFAR-10:") < out.index("CIFAR-100: 30 training images, 10 test images")
    assert "coarse label: 20 classes without names" in out
    assert "classes have none" in out


@pytest.mark.parametrize("source", ["cifar10", "cifar100"])
def test_archives_and_single_files_are_recognised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    make = files.cifar10 if source == "cifar10" else files.cifar100
    title = "CIFAR-10:" if source == "cifar10" else "CIFAR-100:"
    folder, contents = files.version(source, "python", make(30), make(10))
    path = files.write_tar(tmp_path / "some.tar.gz", folder, contents)
    assert f"{title} 30 training images, 10 test images" in check(path, capsys)[1]
    (tmp_path / "mine.bin").write_bytes(make(7).tobytes())
    assert f"{title} 7 training images, 0 test images" in check(tmp_path / "mine.bin", capsys)[1]


def test_every_problem_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F6: not only the first; exit code 2."""
    write(tmp_path)
    (tmp_path / "data_batch_1.bin").write_bytes(b"")
    with (tmp_path / "data_batch_3.bin").open("ab") as file:
        file.write(b"x")
    code, out, err = check(tmp_path, capsys)
    assert code == 2
    assert "data_batch_1.bin is empty" in err
    assert "data_batch_3.bin is truncated" in err
    assert "10 training images, 10 test images" in out


@pytest.mark.parametrize("given", ["{}", "{}/*_batch*"])
def test_every_problem_of_pickles_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str) -> None:
    """F6: each once, whether files are named or their directory; also a file that is missing among them."""
    folder = files.write_folder(tmp_path, *files.version("cifar10", "python", files.cifar10(50), files.cifar10(10, 1)))
    for number in (1, 4):
        victim = folder / f"data_batch_{number}"
        victim.write_bytes(victim.read_bytes()[:-9])
    (folder / "data_batch_3").write_bytes(files.pickle10(files.cifar10(0)))
    (folder / "data_batch_2").unlink()
    code, out, err = check(given.format(folder), capsys)
    assert code == 2
    for number in (1, 4):
        assert err.count(f"data_batch_{number} is no pickle of CIFAR, or is damaged") == 1
    assert err.count("data_batch_3 holds no images: download it again") == 1
    assert err.count("holds data_batch_3 but no data_batch_2") == (given == "{}")
    assert "CIFAR-10: 10 training images, 10 test images" in out


def test_copies_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F15: what training refuses."""
    write(tmp_path / "one")
    write(tmp_path / "two")
    code, _, err = check(f"{tmp_path}/*", capsys)
    assert code == 2
    assert "two/data_batch_1.bin holds the same records as " in err
    assert "two/test_batch.bin holds the same records as " in err


def test_a_test_set_that_would_train_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F6."""
    write(tmp_path)
    shutil.copy(tmp_path / "test_batch.bin", tmp_path / "data_batch_3.bin")
    code, _, err = check(tmp_path, capsys)
    assert code == 2
    assert "data_batch_3.bin of the training set holds the same records as " in err
    assert err.endswith("so the test is on what was trained: leave it out of one of them, or download it again\n")


@pytest.mark.parametrize("what", ["nothing", "."])
def test_paths_without_data(workspace: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    code, out, err = check(what, capsys)
    assert (code, out) == (2, "")
    assert err.startswith("lockstep: ")
    assert err.count("\n") == 1
