"""Training from shards: one digest, wherever they lie, however many workers there are, and whatever happens to them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from lockstep import api, checkpoint, evaluate, injection
from lockstep.data import imagenet, open_dataset
from lockstep.data.order import Layout, samples_of_leaf
from lockstep.data.source import in_order
from lockstep.replica import Replica
from lockstep.rundirectory import RunDirectory
from tests.alone import set_up
from tests.conftest import Command, digest_in, run
from tests.data import pictures
from tests.data.faultproxy import FaultProxy
from tests.data.s3server import Server
from tests.data.webserver import WebServer
from tests.test_resume import rows_of

# 40 images, 8 more for the test; 4 leaves of 4: an epoch has two and a half steps.
TINY = [
    *["imagenet-resnet50-modern", "--model", "small", "--leaves", "4", "--batch-size", "16", "--steps", "7"],
    *["--set", "data.side=32", "--set", "data.resize=[40,48]", "--set", "data.window=2", "--hold-out", "8"],
    *["--set", "log_every=1", "--set", "evaluation.leaf_batch=3", "--set", "evaluation.every_steps=5"],
]


@pytest.fixture(scope="module")
def tars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pictures.write_tars(tmp_path_factory.mktemp("tars"))


@pytest.fixture(scope="module")
def reference_run(tars: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The workspace of one worker that reads tars of this host, and its digest."""
    directory = tmp_path_factory.mktemp("reference")
    result = run("train", *TINY, "--data", str(tars), "--workers", "1", "--run", "run", cwd=directory)
    return directory, digest_in(result)


@pytest.fixture(scope="module")
def reference(reference_run: tuple[Path, str]) -> str:
    return reference_run[1]


def test_folders_and_two_workers_give_the_same_bits(lockstep: Command, workspace: Path, reference: str) -> None:
    """F59: the order depends on sizes of shards, never on what they are."""
    pictures.write_folders(workspace / "folders")
    result = lockstep("train", *TINY, "--data", "folders", "--workers", "2", "--run", "run")
    assert digest_in(result) == reference
    assert "on 8 held-out images" in result.stdout
    facts = json.loads((workspace / "runs/run/environment.json").read_text())
    import cv2

    assert facts["opencv"] == cv2.__version__


def test_a_killed_worker_of_four_changes_no_bit(lockstep: Command, tars: Path, reference: str) -> None:
    """F79: also while it reads."""
    with injection.rules("kill worker=1 step=2 phase=data; kill worker=3 step=4 phase=forward"):
        result = lockstep("train", *TINY, "--data", str(tars), "--workers", "4", "--run", "run")
    assert digest_in(result) == reference
    assert len(rows_of("run", "death")) == 2


def test_s3_with_a_cache_on_disk_gives_the_same_bits(
    lockstep: Command, workspace: Path, tars: Path, reference: str, owner: Server
) -> None:
    """F16: and so does S3 without one."""
    for tar in tars.iterdir():
        owner.put("shards", f"ILSVRC2012_img_train/{tar.name}", tar.read_bytes())
    url = ["--data", "s3://shards/ILSVRC2012_img_train"]
    cache = ["--set", "data.cache_size=0.1", "--workers", "2", "--run", "with"]
    with FaultProxy(owner.port).running() as proxy:
        assert digest_in(lockstep("train", *TINY, *url, *cache, "--endpoint-url", proxy.url)) == reference
        recipe, _ = RunDirectory(workspace / "runs/with").read_config()
        everything = open_dataset(recipe.data, recipe.seed)
        before = len(proxy.requests)
        everything.train.fetch(in_order(0, 40))
        everything.test.fetch(in_order(0, 8))
        assert len(proxy.requests) == before  # the run has left it all on the disk: a second epoch asks for nothing
    assert digest_in(lockstep("train", *TINY, *url, "--workers", "1", "--run", "without")) == reference


def test_a_web_server_and_a_resume_in_an_epoch_give_the_same_bits(
    lockstep: Command, tars: Path, reference: str
) -> None:
    """F76: shards by braces, since nobody lists them."""
    web = WebServer({f"/{tar.name}": tar.read_bytes() for tar in tars.iterdir()})
    with web.running():
        data = ["--data", f"{web.url}/n0150{{0..3}}000.tar"]
        begun = lockstep("train", *TINY, *data, "--stop-at", "4", "--workers", "2", "--run", "run")
        assert "3 steps are left" in begun.stdout
        resumed = lockstep("resume", "run", "--workers", "1")
    assert digest_in(resumed) == reference


def test_a_resume_in_an_epoch_reads_nothing_of_what_came_before(lockstep: Command, workspace: Path) -> None:
    """F76: the shards of the steps that are left, and the first leaf, which every worker computes before it may join. A
    step takes two shards of the eight."""
    tars = pictures.write_tars(workspace / "tars", classes=8, each=4)
    test = ["--eval-data", str(pictures.write_tars(workspace / "test", classes=8, each=1))]
    options = [*TINY[:5], "--batch-size", "8", "--steps", "4", *TINY[9:13], "--set", "data.window=1"]
    web = WebServer({f"/{tar.name}": tar.read_bytes() for tar in tars.iterdir()})
    with web.running():
        data = ["--data", f"{web.url}/n0150{{0..7}}000.tar"]
        begun = lockstep("train", *options, *data, *test, "--stop-at", "2", "--workers", "2", "--run", "run")
        assert "2 steps are left" in begun.stdout, begun.stderr
        web.read.clear()
        digest_in(lockstep("resume", "run", "--workers", "2"))
    shards = [
        samples_of_leaf(0, Layout((4,) * 8, 1), 8, 4, step, leaf).index // 4 for step in range(4) for leaf in range(4)
    ]
    probe, left = set(shards[0]), {shard for leaf in shards[8:] for shard in leaf}
    assert (len(probe), len(left), len(probe & left)) == (1, 4, 0)
    assert set(web.read) == {f"/n0150{shard}000.tar" for shard in probe | left}


def test_broken_images_are_passed_over_counted_and_named(lockstep: Command, workspace: Path, tars: Path) -> None:
    """The same bits for any number of workers; one in the test set is counted, and still an example."""
    shutil.copytree(tars, workspace / "tars")
    names = [pictures.damage(workspace / "tars/n01501000.tar", number) for number in (3, 4)]  # 15 is held out
    digests = []
    for workers in ("1", "2"):
        result = lockstep("train", *TINY, "--data", "tars", "--workers", workers, "--run", f"run{workers}")
        digests.append(digest_in(result))
        assert "2 broken images were passed over" in result.stdout
        rows = rows_of(f"run{workers}", "broken")
        assert sorted(row["image"].rpartition(", ")[2] for row in rows) == sorted(names)
        assert rows_of(f"run{workers}", "eval")[-1]["examples"] == 8
        logs = "".join(path.read_text() for path in (workspace / f"runs/run{workers}/logs").iterdir())
        assert all(name in logs for name in names)
    assert digests[0] == digests[1]


def test_too_many_broken_images_of_all_workers_stop_the_run(lockstep: Command, workspace: Path, tars: Path) -> None:
    """No worker alone need have seen so many."""
    shutil.copytree(tars, workspace / "tars")
    for tar in sorted((workspace / "tars").iterdir()):
        for number in (0, 1, 5):
            pictures.damage(tar, number)
    options = ["--set", "data.max_broken=6", "--workers", "2", "--run", "run"]
    result = lockstep("train", *TINY, "--data", "tars", *options)
    assert result.returncode == 2
    assert "7 images cannot be decoded, and data.max_broken is 6" in result.stderr
    assert "Traceback" not in result.stderr


ALEXNET = [
    *["alexnet-imagenet", "--leaves", "2", "--batch-size", "8", "--steps", "2", "--set", "data.side=32"],
    *["--set", "data.resize=[40,40]", "--set", "model.dense=16", "--set", "evaluation.leaf_batch=3"],
]


def labelled(directory: Path) -> list[str]:
    """ImageNet as the Ray example had it: shards whose names begin with other digits too, and a file of labels."""
    train = pictures.write_tars(directory / "train", classes=3, each=8)
    shutil.copy(train / "n01500000.tar", train / "n02500000.tar")
    lines = [f"n{1500 + label:05d}000_{number}.JPEG {label}\n" for label in range(3) for number in range(8)]
    (directory / "train.txt").write_text("".join(lines))
    return ["--data", str(train), "--labels", str(directory / "train.txt")]


def test_the_ray_example_trains_through_a_driver(lockstep: Command, workspace: Path) -> None:
    """F16 F17 F31 F52: its part of the shards by default, and the same bits as one worker alone."""
    data = labelled(workspace)
    alone = lockstep("train", *ALEXNET, *data, "--workers", "1", "--run", "alone")
    assert "3 of 4 shards; --key-prefix n for all" in alone.stderr
    assert "the training set has 24 images: the test takes 2 of them, and not 500" in alone.stderr
    driven = lockstep("train", *ALEXNET, *data, "--workers", "2", "--strategy", "driver", "--run", "driven")
    assert digest_in(driven) == digest_in(alone)
    recipe, _ = RunDirectory(workspace / "runs/driven").read_config()
    assert recipe.data.key_prefix == "n015"


def test_what_is_missing_is_one_sentence(lockstep: Command, workspace: Path) -> None:
    for arguments, sentence in {
        ("alexnet-imagenet",): "give their directory or URL with --data",
        ("alexnet-imagenet", "--data", "nowhere"): "there is no",
        ("imagenet-resnet50", "--data", str(pictures.write_tars(workspace / "tars", 2, 2))): "--eval-data",
    }.items():
        result = lockstep("train", *arguments, "--workers", "1")
        assert result.returncode == 2
        assert sentence in result.stderr
        assert len(result.stderr.splitlines()) == 1, result.stderr


def test_random_images_still_do(lockstep: Command, workspace: Path) -> None:
    """F24: the recipes for ImageNet need no data to be measured."""
    options = ["--model", "small", "--leaves", "1", "--batch-size", "4", "--steps", "1", "--workers", "1"]
    evaluation = ["--set", "evaluation.leaf_batch=4", "--set", "evaluation.max_leaves=1"]
    result = lockstep("train", "alexnet-imagenet", "--data", "synthetic-imagenet", *options, *evaluation)
    assert "on 4 test images" in result.stdout, result.stderr


def test_predict_sees_what_evaluation_sees(reference_run: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same pixels of the same file, and the same logits; also in a run that is older than `is_framed`.

    Probabilities would tell nothing: after seven steps at this rate the network is sure of one class, whatever it sees.
    """
    monkeypatch.chdir(reference_run[0])
    directory = RunDirectory(Path("runs/run"))
    recipe, _ = directory.read_config()
    replica = set_up(recipe)[0]
    replica.load(checkpoint.load(directory.checkpoints / "step-000000007", dict(replica.named_state())))
    expected = torch.from_numpy(open_dataset(recipe.data, recipe.seed).test.fetch(in_order(0, 8)).images)
    with evaluate.inference(replica):
        logits = torch.cat([evaluate.seen(replica, one[None], odd=True) for one in expected])
    assert len(logits.unique(dim=0)) == 8
    files = [data for label in range(4) for data in pictures.several(12, label)]
    paths = [Path(f"{number}.JPEG") for number in imagenet.parted(48, 8)[1]]
    for path in paths:
        path.write_bytes(files[int(path.stem)])
    found: list[tuple[Tensor, Tensor]] = []

    def seen(replica: Replica, images: Tensor, odd: bool) -> Tensor:
        found.append((images, original(replica, images, odd)))
        return found[-1][1]

    original = evaluate.seen
    monkeypatch.setattr(evaluate, "seen", seen)

    def assert_same(images: Sequence[Path | Image.Image], which: slice) -> None:
        found.clear()
        assert all(one.problem is None for one in api.predict("run", images))
        assert torch.equal(torch.cat([images for images, _ in found]), expected[which])
        torch.testing.assert_close(torch.cat([logits for _, logits in found]), logits[which])

    assert_same(paths, slice(None))
    assert_same([Image.open(path) for path in paths[::2]], slice(0, None, 2))  # in CMYK, which is for Pillow anyhow
    described = directory.path / "dataset.json"
    plain = json.loads(described.read_text())
    assert plain.pop("is_framed")
    described.write_text(json.dumps(plain))
    assert_same(paths, slice(None))
    (missing,) = api.predict("run", ["nothing.JPEG"])
    assert missing.problem == "there is no file nothing.JPEG"
