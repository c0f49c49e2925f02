"""Data sets of the user's own: what they may be, what is refused, and that items do not depend on who reads them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lockstep import runcode
from lockstep.config import Data
from lockstep.data import open_dataset
from lockstep.data.order import Samples
from lockstep.data.source import Dataset, draws_here, in_order
from lockstep.errors import JobError, UserError
from tests.conftest import REPOSITORY

psutil = pytest.importorskip("psutil")

DRAWING = """
import os, random
from pathlib import Path
import numpy as np
import torch

class Drawn(torch.utils.data.Dataset):
    num_classes = 3
    def __init__(self, size):
        self.size = size
    def __len__(self):
        return self.size
    def __getitem__(self, index):
        if index == 13 and os.environ.get("RAISES"):
            raise KeyError("no thirteen")
        if index == 13 and (mark := os.environ.get("DIES")) and not Path(mark).exists():
            Path(mark).touch()
            os._exit(1)
        if index == 13 and os.environ.get("ALWAYS_DIES"):
            os._exit(1)
        drawn = [index, random.random(), np.random.rand(), float(torch.rand(()))]
        return torch.tensor(drawn), index % 3

def both():
    return Drawn(40), Drawn(20)
"""


def opened(place: Path, text: str, function: str = "both", **keys: object) -> Dataset:
    """The data set of a function in a file of its own."""
    path = place / f"own_{abs(hash(text))}.py"
    path.write_text(text)
    return open_dataset(Data(source=f"{path}:{function}", **keys), seed=7)  # type: ignore[arg-type]


def batch_of(dataset: Dataset, epoch: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Six items, not in their order."""
    index = np.array([5, 2, 13, 0, 7, 9])
    return dataset.train.fetch(Samples(np.full_like(index, epoch), index)).images


def test_what_items_draw_depends_on_seed_epoch_and_index_alone(tmp_path: Path) -> None:
    dataset = opened(tmp_path, DRAWING)
    first = batch_of(dataset)
    torch.manual_seed(1)
    np.random.seed(2)
    random.seed(3)
    assert (batch_of(dataset) == first).all()
    one = dataset.train.fetch(in_order(13, 14)).images[0]
    assert (one == first[2]).all()
    assert not (batch_of(dataset, epoch=1)[:, 1:] == first[:, 1:]).any()
    assert not (dataset.test.fetch(in_order(13, 14)).images[0, 1:] == one[1:]).any()
    assert len(np.unique(first[:, 1:])) == 18


def test_reading_items_leaves_the_generators_as_they_were(tmp_path: Path) -> None:
    dataset = opened(tmp_path, DRAWING)
    torch.manual_seed(1)
    np.random.seed(2)
    random.seed(3)
    expected = (float(torch.rand(())), np.random.rand(), random.random())
    torch.manual_seed(1)
    np.random.seed(2)
    random.seed(3)
    batch_of(dataset)
    assert (float(torch.rand(())), np.random.rand(), random.random()) == expected


def test_data_processes_give_the_same_bits_and_are_replaced_when_one_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = opened(tmp_path, DRAWING)
    assert draws_here(here.train)
    expected = batch_of(here)
    elsewhere = opened(tmp_path, DRAWING, processes=2)
    monkeypatch.setenv("DIES", str(tmp_path / "died"))
    assert not draws_here(elsewhere.train)
    assert (batch_of(elsewhere) == expected).all()
    assert (tmp_path / "died").exists()


def test_data_processes_that_always_die_are_reported_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = opened(tmp_path, DRAWING, processes=1)
    monkeypatch.setenv("ALWAYS_DIES", "1")
    monkeypatch.setattr("lockstep.data.processes.MAX_DEATHS", 2)
    with pytest.raises(JobError, match="the data processes died 2 times over items 0 to 13"):
        batch_of(dataset)


@pytest.mark.parametrize("processes", [0, 1])
def test_what_an_item_raises_reaches_the_user_with_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    dataset = opened(tmp_path, DRAWING, processes=processes)
    monkeypatch.setenv("RAISES", "1")
    with pytest.raises(JobError, match=r"(?s)item 13 of the training set cannot be read:.*KeyError: 'no thirteen'"):
        batch_of(dataset)


WAITING = """
import sys
import psutil
from lockstep.config import Data
from lockstep.data import open_dataset
from lockstep.data.source import in_order

if __name__ == "__main__":
    dataset = open_dataset(Data(source=sys.argv[1], processes=1), 0)
    dataset.train.fetch(in_order(0, 4))
    print(*(child.pid for child in psutil.Process().children(recursive=True)), flush=True)
    sys.stdin.read()
"""


def test_data_processes_end_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(DRAWING)
    (tmp_path / "waiting.py").write_text(WAITING)
    command = [sys.executable, "waiting.py", f"{tmp_path}/own.py:both"]
    pipe, environment = subprocess.PIPE, {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    worker = subprocess.Popen(command, cwd=tmp_path, stdin=pipe, stdout=pipe, text=True, env=environment)
    assert worker.stdout is not None
    children = [psutil.Process(int(pid)) for pid in worker.stdout.readline().split()]
    assert children
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    _, alive = psutil.wait_procs(children, timeout=30)
    for child in alive:
        child.kill()
    assert not alive


def test_what_the_function_draws_is_the_same_in_every_process(tmp_path: Path) -> None:
    text = DRAWING.replace("return Drawn(40), Drawn(20)", "return torch.utils.data.random_split(Drawn(40), [25, 15])")
    batches = []
    for number in (1, 2):
        torch.manual_seed(number)
        np.random.seed(number)
        random.seed(number)
        dataset = opened(tmp_path, text)
        batches.append(dataset.train.fetch(in_order(0, 25)).images)
        assert (len(dataset.train), len(dataset.test), dataset.num_classes) == (25, 15, 3)
    assert (batches[0] == batches[1]).all()
    assert batches[0][:, 0].tolist() != sorted(batches[0][:, 0])


# What a set may be


def arrays(inputs: str, targets: str = "np.arange(12) % 3") -> str:
    return f"""
import numpy as np, torch
from PIL import Image
def both():
    rng = np.random.default_rng(0)
    pair = ({inputs}, {targets})
    return pair, pair
"""


@pytest.mark.parametrize(
    ("inputs", "shape", "dtype"),
    [
        ("rng.integers(0, 256, (12, 3, 8, 9), dtype=np.uint8)", (3, 8, 9), np.uint8),
        ("rng.integers(0, 256, (12, 8, 9, 3), dtype=np.uint8)", (3, 8, 9), np.uint8),
        ("rng.integers(0, 256, (12, 8, 9), dtype=np.uint8)", (1, 8, 9), np.uint8),
        ("torch.zeros(12, 3, 8, 9, dtype=torch.uint8)", (3, 8, 9), np.uint8),
        ("rng.normal(size=(12, 5))", (5,), np.float32),
        ("torch.zeros(12)", (), np.float32),
    ],
)
def test_pairs_of_arrays(tmp_path: Path, inputs: str, shape: tuple[int, ...], dtype: type) -> None:
    dataset = opened(tmp_path, arrays(inputs), crop_padding=0, flip=False)
    batch = dataset.train.fetch(in_order(2, 7))
    assert (dataset.image_shape, dataset.num_classes, dataset.holds_images) == (shape, 3, dtype is np.uint8)
    assert batch.images.shape == (5, *shape)
    assert batch.images.dtype == np.dtype(dtype)
    assert batch.labels.tolist() == [2, 0, 1, 2, 0]
    assert not draws_here(dataset.train)


def test_images_are_channels_first_whatever_they_were_and_may_be_pillow_s(tmp_path: Path) -> None:
    text = """
import numpy as np
from PIL import Image
class Pictures:
    classes = ["a", "b"]
    def __len__(self):
        return 6
    def __getitem__(self, index):
        pixels = np.arange(8 * 9 * 3, dtype=np.uint8).reshape(8, 9, 3) + index
        return Image.fromarray(pixels), np.int32(index % 2)
def both():
    return Pictures(), Pictures()
"""
    dataset = opened(tmp_path, text, crop_padding=0, flip=False)
    batch = dataset.test.fetch(in_order(0, 6))
    assert batch.images.shape == (6, 3, 8, 9)
    assert batch.images[1, 2, 4, 5] == (4 * 9 + 5) * 3 + 2 + 1
    assert dataset.class_names == ("a", "b")


def test_float_targets_have_no_classes_and_held_out_items_take_the_place_of_the_test_set(tmp_path: Path) -> None:
    text = arrays("rng.normal(size=(12, 5))", "rng.normal(size=(12, 2))").replace("pair, pair", "pair, None")
    with pytest.raises(UserError, match="returned no test set: return one, or hold out samples"):
        opened(tmp_path, text)
    dataset = opened(tmp_path, text, hold_out=4)
    assert (len(dataset.train), len(dataset.test), dataset.num_classes) == (8, 4, None)
    assert dataset.test.fetch(in_order(0, 4)).labels.shape == (4, 2)


def test_held_out_items_that_draw_are_told(tmp_path: Path) -> None:
    """They are tested on as they are trained on: only the user's code could leave its transforms out."""
    (note,) = opened(tmp_path, DRAWING, hold_out=4).notes
    assert "--hold-out tests on some of them: for a test without, leave it out and return a test set" in note
    still = DRAWING.replace("[index, random.random(), np.random.rand(), float(torch.rand(()))]", "[float(index)] * 4")
    assert opened(tmp_path, still, hold_out=4).notes == ()
    assert opened(tmp_path, DRAWING).notes == ()


def test_a_function_is_told_the_path_that_it_asks_for(tmp_path: Path) -> None:
    text = "import numpy as np\ndef both(path):\n    pair = (np.full((4, 1), float(path)), np.zeros((4, 1)))\n"
    dataset = opened(tmp_path, text + "    return pair, pair\n", path="17")
    assert dataset.train.fetch(in_order(0, 1)).images[0, 0] == 17


def test_folders_of_images_start_where_the_file_lies(tmp_path: Path) -> None:
    for number in range(8):
        folder = tmp_path / "pictures" / ("cat", "dog")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 24), (number * 30, 0, 0)).save(folder / f"{number}.png")
    text = "def both():\n    return 'pictures', None\n"
    dataset = opened(tmp_path, text, hold_out=2, side=16, resize=(18, 18), framing="square", crop_padding=0)
    assert (len(dataset.train), len(dataset.test)) == (6, 2)
    assert (dataset.class_names, dataset.image_shape) == (("cat", "dog"), (3, 16, 16))
    assert dataset.test.fetch(in_order(0, 2)).images.shape == (2, 3, 16, 16)


def test_a_relative_folder_is_refused_where_lockstep_has_written_the_function(tmp_path: Path) -> None:
    """The file lies in the run's directory then, and not where the user's notebook does."""
    with pytest.raises(UserError, match=r"^both returned the path pictures, .*: return an absolute one"):
        opened(tmp_path, f"{runcode.MARK}: of a cell.\ndef both():\n    return 'pictures', None\n", hold_out=2)


# What is refused

ITEMS = """
import numpy as np, torch
class Items:
    num_classes = 3
    def __init__(self, item):
        self.item = item
    def __len__(self):
        return 20
    def __getitem__(self, index):
        return self.item(index)
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([])
"""


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        ("Stream(), Stream()", r"the training set \(Stream\) has no length and index: iterable data cannot"),
        ("(i for i in [1]), []", r"the training set \(generator\) has no length and index"),
        (
            "Items(lambda i: (np.zeros(i + 1), 0)), []",
            "item 2 has an input of shape 3 .float64., and item 0 of shape 1",
        ),
        ("Items(lambda i: (np.zeros(1), np.zeros(i))), []", "item 2 has a target of shape 2"),
        ("Items(lambda i: np.zeros(1)), []", r"item 0 of the training set is a ndarray, not a pair \(input, target\)"),
        (
            "Items(lambda i: (i, 0)), []",
            "the training set: inputs are of type int64: return images in uint8, or floats",
        ),
        ("Items(lambda i: (np.zeros(5, np.uint8), 0)), []", "inputs in uint8 are images.*and not 5"),
        ("Items(lambda i: (0.5, np.zeros(2, int))), []", "a target is the number of a class, or floats"),
        ("(np.zeros((4, 1)), np.zeros(3)), []", "the training set has 4 inputs, but 3 targets"),
        ("(np.array([[1], [1, 2]], object), np.zeros(2)), []", "the training set has items of differing shapes"),
        ("(np.zeros((4, 1)), np.zeros(4)), (np.zeros((4, 2)), np.zeros(4))", "the two sets differ"),
        ("(np.zeros((0, 1)), np.zeros(0)), []", "the training set is empty"),
        (
            "[(np.zeros(1), 0)] * 4, [(np.zeros(1), 0)]",
            "does not say how many classes there are: give it `num_classes`",
        ),
        ("1", "returned int, not a pair: the training set, the test set"),
        ("'folder', [(0.5, 0)]", "where one of the two sets is a folder of images, the other must be one too"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_in_one_sentence(tmp_path: Path, returned: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        opened(tmp_path, f"{ITEMS}\ndef both():\n    return {returned}\n")


def test_what_only_shows_later_is_said_with_the_item(tmp_path: Path) -> None:
    text = ITEMS + "\ndef both():\n    return Items(lambda i: (0.5, 3 if i == 1 else 0)), Items(lambda i: (0.5, 0))\n"
    with pytest.raises(UserError, match="item 1 of the training set is of class 3, but there are 3 classes, from 0 on"):
        opened(tmp_path, text).train.fetch(in_order(0, 4))
    text = text.replace("(0.5, 3 if i == 1 else 0)", "(np.zeros((2,) if i == 1 else ()), 0)")
    with pytest.raises(UserError, match="the training set: item 1 has an input of shape 2"):
        opened(tmp_path, text).train.fetch(in_order(0, 4))


@pytest.mark.parametrize(("name", "label"), [("training", -1), ("test", 3), ("test", -1)])
def test_a_class_that_arrays_must_not_have_is_refused_before_the_start(tmp_path: Path, name: str, label: int) -> None:
    """Wherever it stands: not when the test set is read, at the end of the run."""
    text = f"""
import numpy as np
def both():
    inputs, right = np.zeros((100, 1)), np.arange(100) % 3
    wrong = np.where(np.arange(100) == 37, {label}, right)
    return (inputs, {"wrong" if name == "training" else "right"}), (inputs, {"wrong" if name == "test" else "right"})
"""
    told = f"item 37 of the {name} set is of class {label}, but there are 3 classes, from 0 on"
    with pytest.raises(UserError, match=told):
        opened(tmp_path, text)
