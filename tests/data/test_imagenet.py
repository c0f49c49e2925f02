"""The source `imagenet`: labels, held-out samples, order, reading ahead, and images that cannot be decoded."""

from __future__ import annotations

import io
import tarfile
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lockstep.config import Data, Evaluation
from lockstep.data import decode, framing, imagenet, open_dataset
from lockstep.data.order import Layout, Samples, samples_of_leaf
from lockstep.data.source import Batch, Dataset, in_order, layout_of, read_ahead
from lockstep.data.storage import Access, Object, Range, Storage, open_storage
from lockstep.errors import UserError
from lockstep.evaluate import announce, samples_of
from lockstep.recipes.imagenet import alexnet_imagenet
from lockstep.reporter import Reporter
from tests.alone import set_up, tiny_recipe, train
from tests.data import pictures
from tests.data.shards import write_tar

PLAIN = Data(source="imagenet", side=32, resize=(40, 48), crop_padding=0, flip=False, window=2, hold_out=8)


@pytest.fixture(scope="module")
def tars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pictures.write_tars(tmp_path_factory.mktemp("tars"))


def opened(path: Path, **options: object) -> Dataset:
    return open_dataset(replace(PLAIN, path=str(path), **options), seed=0)  # type: ignore[arg-type]


def test_training_and_test_images_are_the_windows_of_their_files(tars: Path) -> None:
    """F22: the label is the rank of the shard; a test image is the middle of its file."""
    dataset = opened(tars)
    assert (len(dataset.train), len(dataset.test)) == (40, 8)
    assert (dataset.num_classes, dataset.image_shape) == (4, (3, 32, 32))
    files = [data for label in range(4) for data in pictures.several(12, label)]
    stay, held_out = imagenet.parted(48, 8)
    assert sorted([*stay, *held_out]) == list(range(48))
    assert {int(number) // 12 for number in held_out} == {0, 1, 2, 3}  # of every shard

    batch = dataset.test.fetch(in_order(0, 8))
    assert batch.labels.tolist() == [int(number) // 12 for number in held_out]
    for image, number in zip(batch.images, held_out, strict=True):
        expected = decode.cut(files[number], framing.evaluation_frame(PLAIN), 32)
        assert (image.transpose(1, 2, 0) == expected).all()

    samples = Samples(epoch=np.full(5, 3), index=np.array([7, 0, 39, 20, 7]))
    batch = dataset.train.fetch(samples)
    frames = framing.training_frames(PLAIN, 0, samples)
    for image, index, frame in zip(batch.images, samples.index, frames, strict=True):
        assert (image.transpose(1, 2, 0) == decode.cut(files[stay[index]], frame, 32)).all()


def test_windows_of_shards_are_shuffled_and_nothing_is_left_out(tars: Path) -> None:
    """Held-out samples leave their shards smaller."""
    source = opened(tars).train
    layout = layout_of(source)
    assert layout == Layout((10, 10, 10, 10), 2)
    seen = [samples_of_leaf(0, layout, 8, 2, step, leaf).index for step in range(5) for leaf in range(2)]
    assert sorted(np.concatenate(seen)) == list(range(40))


def test_a_step_sees_many_classes_where_every_shard_is_one(tmp_path: Path) -> None:
    """F14: folders and the tars of synsets are shuffled as a whole, unless a window was chosen, as in older runs."""
    for write in (pictures.write_folders, pictures.write_tars):
        path = write(tmp_path / write.__name__, classes=40, each=4)
        source = opened(path, window=Data().window).train
        first = samples_of_leaf(0, layout_of(source), 64, 1, 0, 0)
        assert len(set(source.fetch(first).labels.tolist())) > 30
        assert layout_of(source) == len(source) == 152
        stored = layout_of(opened(path, window=16).train)
        assert isinstance(stored, Layout)
        assert (len(stored.sizes), len(stored), stored.window) == (40, 152, 16)


def test_shards_of_mixed_classes_keep_their_windows(tmp_path: Path) -> None:
    """F14: whoever reads them reads few at once; one shard with two classes is enough for that."""
    for shard in range(20):
        labels = (1, 2 if shard == 7 else 1)
        files: dict[str, bytes] = {}
        for number, label in enumerate(labels):
            files |= {f"{number}.jpg": b"image", f"{number}.cls": b"%d" % label}
        write_tar(tmp_path / f"{shard:02d}.tar", files)
    source = opened(tmp_path, window=Data().window, eval_path=str(tmp_path), hold_out=0).train
    assert layout_of(source) == Layout((2,) * 20, 16)


def test_background_moves_all_labels_by_one(tars: Path) -> None:
    """F23: 1001 classes of 1000."""
    plain, moved = opened(tars), opened(tars, background=True)
    assert plain.num_classes is not None
    assert moved.num_classes == plain.num_classes + 1
    samples = in_order(0, 40)
    assert (moved.train.fetch(samples).labels == plain.train.fetch(samples).labels + 1).all()
    assert moved.class_names is None or moved.class_names[0] == "background"


def test_a_prefix_takes_some_shards_and_says_so(tars: Path) -> None:
    """F17."""
    dataset = opened(tars, key_prefix="n01501", hold_out=1)
    assert (len(dataset.train), len(dataset.test), dataset.num_classes) == (11, 1, 4)
    assert dataset.notes == ("1 of 4 shards; --key-prefix n for all",)
    assert opened(tars).notes == ()


def test_the_part_that_the_ray_example_takes(tmp_path: Path) -> None:
    """F17: 13 of ImageNet's 1000; the others are not even read, and their labels are the same without them."""
    picture = pictures.of_kind("colour")
    for number in range(1000):
        name = f"n015{number:05d}" if 500 <= number < 513 else f"n{2 * (number >= 513):02d}{number:06d}"
        with tarfile.open(tmp_path / f"{name}.tar", "w") as tar:
            member = tarfile.TarInfo(f"{name}_1.JPEG")
            member.size = len(picture)
            if name.startswith("n015"):
                tar.addfile(member, io.BytesIO(picture))
    dataset = opened(tmp_path, key_prefix=alexnet_imagenet().data.key_prefix, hold_out=1)
    assert dataset.notes == ("13 of 1000 shards; --key-prefix n for all",)
    assert dataset.num_classes == 1000
    assert dataset.train.fetch(in_order(0, 12)).labels.tolist() == [n for n in range(500, 513) if n != 506]


def test_the_way_to_all_shards_fits_their_names(tmp_path: Path) -> None:
    """F17: not every shard is a synset, and they may begin with different letters."""
    for name in ("part-1", "part-2", "more-1"):
        with tarfile.open(tmp_path / f"{name}.tar", "w") as tar:
            for number in range(2):
                for suffix, data in (("jpg", pictures.of_kind("colour")), ("cls", b"1")):
                    member = tarfile.TarInfo(f"{name}-{number}.{suffix}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    for prefix, notes in {
        "part-1": ("1 of 3 shards; --key-prefix p for all",),
        "p": ("2 of 3 shards; --key-prefix '' for all",),
        "": (),
    }.items():
        assert opened(tmp_path, key_prefix=prefix, hold_out=1).notes == notes


def test_an_index_that_takes_its_time_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, and not too often."""
    clock = iter([0.0, 1.0, 3.5, 3.5, 4.0, 7.0, 7.0])
    progress = imagenet.Progress(lambda: next(clock))
    for done in range(1, 5):
        progress(done, 4)
    assert capsys.readouterr().err.splitlines() == ["index: 2 of 4 shards read", "index: 4 of 4 shards read"]


def test_of_a_small_set_a_tenth_is_held_out(tars: Path) -> None:
    dataset = opened(tars, hold_out=500)
    assert (len(dataset.train), len(dataset.test)) == (44, 4)
    assert dataset.notes == ("the training set has 48 images: the test takes 4 of them, and not 500",)


def test_a_test_set_beside_the_training_set_or_elsewhere(tmp_path: Path, tars: Path) -> None:
    pictures.write_folders(tmp_path / "train", classes=3, each=4)
    pictures.write_folders(tmp_path / "val", classes=3, each=2)
    beside = opened(tmp_path, hold_out=0)
    assert (len(beside.train), len(beside.test)) == (12, 6)
    assert beside.test.fetch(in_order(0, 6)).labels.tolist() == [0, 0, 1, 1, 2, 2]
    elsewhere = opened(tmp_path / "train", hold_out=0, eval_path=str(tmp_path / "val"))
    assert len(elsewhere.test) == 6
    with pytest.raises(UserError, match="--hold-out"):
        opened(tars, hold_out=0)


def test_a_test_set_with_labels_that_the_training_set_lacks_is_refused(tmp_path: Path, tars: Path) -> None:
    """The network would have no output for them."""
    (tmp_path / "val.txt").write_text("".join(f"n01500000_{number}.JPEG {number % 5}\n" for number in range(12)))
    with pytest.raises(UserError, match=r"the test set has labels up to 4, but the training set .* has 4 classes"):
        opened(tars, hold_out=0, eval_path=str(tars / "n01500000.tar"), eval_label_path=str(tmp_path / "val.txt"))


def test_what_is_missing_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="give their directory or URL with --data"):
        open_dataset(replace(PLAIN, path=None), seed=0)
    with pytest.raises(UserError, match="there is no"):
        opened(tmp_path / "nowhere")


def same(one: Batch, other: Batch) -> bool:
    return bool((one.images == other.images).all() and (one.labels == other.labels).all())


def test_the_next_sample_takes_the_place_of_a_broken_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Also of several in a row, and of the last one; each is named once."""
    tar = pictures.write_tars(tmp_path / "tars", classes=2, each=10)
    samples, stay = in_order(0, 18), [int(number) for number in imagenet.parted(20, 2)[0]]
    whole = opened(tar, hold_out=2).train.fetch(samples)
    names = [pictures.damage(tar / "n01501000.tar", number) for number in (0, 2, 3, 9)]
    dataset = opened(tar, hold_out=2)
    found = [dataset.train.fetch(samples) for _ in range(2)]
    assert same(found[0], found[1])
    broken = {10, 12, 13, 19}
    for index, number in enumerate(stay):
        after = next(n for n in [*stay[index:], *stay] if n not in broken)
        assert found[0].labels[index] == after // 10
        is_same = bool((found[0].images[index] == whole.images[index]).all())
        assert is_same == (number not in broken)
    assert dataset.defects is not None
    assert dataset.defects.count == 4
    log = capfd.readouterr().err
    assert [log.count(name) for name in names] == [1, 1, 1, 1]
    # The frame is that of the sample whose place is taken, so two places may show the same image in two ways.
    frame = framing.training_frames(PLAIN, 0, samples)[stay.index(12)]
    expected = decode.cut(pictures.several(10, 1)[4], frame, 32)  # 13 is broken too
    assert (found[0].images[stay.index(12)].transpose(1, 2, 0) == expected).all()


def test_too_many_broken_images_stop_the_run(tmp_path: Path) -> None:
    tar = pictures.write_tars(tmp_path / "tars", classes=1, each=10)
    for number in (1, 2):
        pictures.damage(tar / "n01500000.tar", number)
    opened(tar, max_broken=2, hold_out=1).train.fetch(in_order(0, 9))
    with pytest.raises(UserError, match=r"2 images cannot be decoded, .* is 1; the last one is .*JPEG"):
        opened(tar, max_broken=1, hold_out=1).train.fetch(in_order(0, 9))


def test_in_evaluation_a_broken_image_is_grey_and_still_counted(tmp_path: Path) -> None:
    tar = pictures.write_tars(tmp_path / "tars", classes=2, each=5)
    pictures.damage(tar / "n01500000.tar", 2)
    dataset = opened(tar, hold_out=2)
    batch = dataset.test.fetch(in_order(0, 2))
    assert batch.labels.tolist() == [0, 1]
    assert (batch.images[0] == 128).all()
    assert not (batch.images[1] == 128).all()
    dataset.test.fetch(in_order(0, 2))
    assert dataset.defects is not None
    assert dataset.defects.count == 1


class Slow:
    """A storage that answers nobody until it is let, and knows who asked."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.lock = threading.Lock()
        self.asked: list[tuple[Object, tuple[Range, ...]]] = []
        self.open = threading.Event()

    def find(self, url: str) -> list[Object]:
        return self._storage.find(url)

    def read(self, found: Object, ranges: Sequence[Range]) -> list[bytes]:
        with self.lock:
            self.asked.append((found, tuple(ranges)))
        assert self.open.wait(20)
        return self._storage.read(found, ranges)

    @property
    def num_bytes(self) -> int:
        with self.lock:
            return sum(stop - start for _, ranges in self.asked for start, stop in ranges)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    storage = Slow(open_storage(Access()))
    monkeypatch.setattr(imagenet, "_storage", lambda data: storage)
    return storage


def leaves(source: object, count: int) -> list[Samples]:
    return [samples_of_leaf(0, layout_of(source), 4, 1, step, 0) for step in range(count)]  # type: ignore[arg-type]


def wait_for(holds: object) -> None:
    deadline = threading.Event()
    for _ in range(400):
        if holds():  # type: ignore[operator]
            return
        deadline.wait(0.02)
    raise AssertionError("it never happened")


def test_leaves_are_read_before_they_are_fetched_and_once(tars: Path, slow: Slow) -> None:
    """While nobody has an answer, the requests of all that is planned are under way."""
    slow.open.set()
    source = opened(tars, window=1).train
    slow.asked.clear()
    slow.open.clear()
    plan = leaves(source, 6)
    read_ahead(source, plan)
    wait_for(lambda: len(slow.asked) >= 6)
    asked = slow.num_bytes
    slow.open.set()
    for at, samples in enumerate(plan):
        read_ahead(source, plan[at:])
        source.fetch(samples)
    assert slow.num_bytes == asked


def test_a_run_reads_what_its_steps_need_and_no_more(tars: Path, slow: Slow) -> None:
    """Nothing is read ahead of the last step."""
    slow.open.set()
    recipe = replace(tiny_recipe(), data=replace(PLAIN, path=str(tars)))
    train(recipe)
    asked = slow.num_bytes
    source = open_dataset(recipe.data, 0).train
    slow.asked.clear()
    for step in range(recipe.steps or 0):
        for leaf in range(recipe.leaves):
            source.fetch(samples_of_leaf(0, layout_of(source), recipe.global_batch, recipe.leaves, step, leaf))
    assert slow.num_bytes == asked


def test_what_is_fetched_before_it_is_planned_is_not_read_again(tars: Path, slow: Slow) -> None:
    """As by a worker of `async`, which learns late what it computes."""
    slow.open.set()
    source = opened(tars).train
    first, second = leaves(source, 2)
    read_ahead(source, [first])
    source.fetch(second)
    asked = slow.num_bytes
    read_ahead(source, [second])
    source.fetch(second)
    assert slow.num_bytes == asked


def test_what_is_read_ahead_is_bounded_in_bytes(tmp_path: Path, slow: Slow) -> None:
    slow.open.set()
    with tarfile.open(tmp_path / "n01500000.tar", "w") as file:
        for number in range(80):
            member = tarfile.TarInfo(f"x{number}.JPEG")
            member.size = 300_000
            file.addfile(member, io.BytesIO(bytes(member.size)))
    source = opened(tmp_path, read_ahead=4, hold_out=4).train
    slow.asked.clear()
    read_ahead(source, leaves(source, 19))
    wait_for(lambda: slow.num_bytes >= 4 << 20)
    assert slow.num_bytes < (4 << 20) + 4 * 340_000  # no more than one leaf beyond


def test_another_plan_is_followed(tars: Path, slow: Slow) -> None:
    slow.open.set()
    source = opened(tars).train
    reference = opened(tars).train
    plan = leaves(source, 8)
    read_ahead(source, plan[:4])
    read_ahead(source, plan[6:])
    for samples in [plan[6], plan[1], plan[7]]:
        assert same(source.fetch(samples), reference.fetch(samples))


def test_who_waits_for_a_slow_server_says_so_and_is_not_stuck(tars: Path, slow: Slow) -> None:
    """A heartbeat calls it waiting: storage gives up by itself, and nobody is expelled before."""
    slow.open.set()
    recipe = replace(tiny_recipe(), data=replace(PLAIN, path=str(tars)))
    replica, _, step = set_up(recipe)
    dataset = open_dataset(recipe.data, 0)
    reporter = Reporter(recipe, replica, step.membership, dataset.waits)
    assert reporter.heartbeat()["phase"] == "between"
    slow.open.clear()
    fetching = threading.Thread(target=dataset.train.fetch, args=(in_order(0, 4),))
    fetching.start()
    wait_for(lambda: reporter.heartbeat()["phase"] == "waiting")
    slow.open.set()
    fetching.join()
    assert reporter.heartbeat()["phase"] == "between"


def test_the_next_leaves_of_an_evaluation_are_read_ahead(tars: Path, slow: Slow) -> None:
    slow.open.set()
    test = opened(tars).test
    slow.asked.clear()
    slow.open.clear()
    config = Evaluation(leaf_batch=3)
    announce([0, 2], test, config)
    wait_for(lambda: len(slow.asked) >= 2)
    asked = slow.num_bytes
    slow.open.set()
    for leaf, size in ((0, 3), (2, 2)):
        assert len(test.fetch(samples_of(leaf, test, config)).labels) == size
    assert slow.num_bytes == asked
