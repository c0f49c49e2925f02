"""`lockstep predict`: what evaluation would say of the same pixels, without workers and without the data."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lockstep import api, checkpoint
from lockstep.cli import main
from lockstep.data import shapes
from lockstep.errors import UserError
from lockstep.replica import Replica
from lockstep.rundirectory import RunDirectory
from tests.alone import set_up
from tests.conftest import digest_in, run
from tests.data.test_cifar import write
from tests.test_resume import TINY


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few steps on small files, and pictures."""
    place = tmp_path_factory.mktemp("trained")
    write(place / "data")
    steps = ["--steps", "6", "--workers", "1", "--set", "checkpoints.every_steps=3", "--data", "data"]
    digest_in(run("train", *TINY, *steps, "--run", "run", cwd=place))
    records = shapes.draw(0, 3)
    for number, record in enumerate(records):
        Image.fromarray(record[1:].reshape(3, 32, 32).transpose(1, 2, 0)).save(place / f"{number}.png")
    return place


@pytest.fixture
def there(trained: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A copy of all that, to be broken."""
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    config = copy / "runs/run/config.json"
    config.write_text(config.read_text().replace(str(trained.resolve()), str(copy)))
    monkeypatch.chdir(copy)
    return copy


def probabilities(step: int) -> list[list[float]]:
    """By the replica of a worker, from the data."""
    recipe, _ = RunDirectory(Path("runs/run")).read_config()
    replica: Replica = set_up(recipe)[0]
    replica.load(checkpoint.load(Path(f"runs/run/checkpoints/step-{step:09d}"), dict(replica.named_state())))
    replica.model.eval()
    images = torch.from_numpy(shapes.draw(0, 3)[:, 1:].reshape(-1, 3, 32, 32))
    with torch.inference_mode():
        return [replica.model(replica.preprocess.normalize(image[None])).softmax(1)[0].tolist() for image in images]


@pytest.mark.parametrize(("wanted", "step"), [(None, 6), ("last", 6), ("3", 3)])
def test_predictions_are_those_of_the_model(there: Path, wanted: str | None, step: int) -> None:
    expected = probabilities(step)
    shutil.rmtree("data")
    found = api.predict("run", ["0.png", Path("1.png"), Image.open("2.png")], top=3, checkpoint=wanted)
    assert [one.image for one in found] == ["0.png", "1.png", ""]
    for one, numbers in zip(found, expected, strict=True):
        best = sorted(range(10), key=lambda number: -numbers[number])[:3]
        assert [guess.number for guess in one.guesses] == best
        for guess in one.guesses:
            assert guess.probability == pytest.approx(numbers[guess.number], abs=1e-5)


def test_classes_have_the_names_of_the_run(there: Path) -> None:
    path = there / "runs/run/dataset.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "class_names": list(shapes.CLASSES)}))
    (one,) = api.predict("last", ["0.png"], top=20)
    assert {guess.name for guess in one.guesses} == set(shapes.CLASSES)
    assert all(guess.name == shapes.CLASSES[guess.number] for guess in one.guesses)
    assert sum(guess.probability for guess in one.guesses) == pytest.approx(1)


def test_an_older_run_needs_its_data(there: Path) -> None:
    Path("runs/run/dataset.json").unlink()
    (one,) = api.predict("run", ["0.png"])
    assert len(one.guesses) == 5
    shutil.rmtree("data")
    with pytest.raises(UserError, match=r"run has no dataset\.json, so its data are needed"):
        api.predict("run", ["0.png"])


def test_the_precision_is_that_of_the_training_and_no_compiler_is_needed(
    there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    config = there / "runs/run/config.json"
    plain = api.predict("run", ["0.png"])[0].guesses[0].probability
    document = json.loads(config.read_text())
    document["recipe"] |= {"precision": "bf16", "compile": True}
    config.write_text(json.dumps(document))
    assert api.predict("run", ["0.png"])[0].guesses[0].probability != plain
    document["recipe"]["precision"] = "tf32"  # trained on a GPU, and looked at without one
    config.write_text(json.dumps(document))
    assert api.predict("run", ["0.png"], device="cpu")[0].guesses[0].probability == pytest.approx(plain)


def test_a_run_that_normalises_by_channels_needs_its_numbers_and_not_its_data(there: Path) -> None:
    """They are in dataset.json; other numbers give another answer."""
    config, described = there / "runs/run/config.json", there / "runs/run/dataset.json"
    document, data = json.loads(config.read_text()), json.loads(described.read_text())
    document["recipe"]["data"]["standardize"] = "channel"
    config.write_text(json.dumps(document))
    shutil.rmtree("data")
    found = []
    for mean in ([120.0] * 3, [60.0] * 3):
        described.write_text(json.dumps({**data, "mean": mean, "deviation": [50.0] * 3}))
        found.append(api.predict("run", ["0.png"])[0].guesses[0].probability)
    assert found[0] != found[1]


def test_a_callers_generators_and_threads_are_left_alone(there: Path) -> None:
    torch.use_deterministic_algorithms(False)

    def draw() -> tuple[float, float, float, int]:
        return torch.rand(()).item(), float(np.random.rand()), random.random(), torch.get_num_threads()

    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    expected = draw()
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])
    random.setstate(states[2])
    api.predict("run", ["0.png"])
    assert draw() == expected
    assert not torch.are_deterministic_algorithms_enabled()


def test_good_images_are_printed_although_others_are_broken(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("broken.png").write_bytes(b"hello")
    assert main(["predict", "run", "0.png", "broken.png", "nothing.png", "1.png", "--top", "2"]) == 2
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert (len(lines), lines[0], lines[3]) == (6, "0.png", "1.png")
    assert lines[1].endswith("%")
    assert shown.err.splitlines() == [
        "lockstep: broken.png is not an image, or of a kind that is not known",
        "lockstep: there is no file nothing.png",
    ]
    assert main(["predict", "run", "0.png", "nothing.png", "--json"]) == 2
    good, bad = map(json.loads, capsys.readouterr().out.splitlines())
    assert (good["image"], len(good["guesses"]), "problem" in good) == ("0.png", 5, False)
    assert bad == {"image": "nothing.png", "problem": "there is no file nothing.png"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["predict", "run", "0.png", "--top", "0"], "--top takes a number of classes from 1 on"),
        (["predict", "rnu", "0.png"], "did you mean 'run'"),
        (["predict", "run", "0.png", "--checkpoint", "4"], "run has no checkpoint of step 4: there are 3, 6"),
        (
            ["predict", "run", "0.png", "--checkpoint", "bets"],
            "`best`, `last` or the number of a step, not 'bets': did you mean 'best'?",
        ),
    ],
)
def test_what_cannot_be_predicted(
    there: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert sentence in capsys.readouterr().err


def test_the_run_is_left_as_it_was(there: Path) -> None:
    def contents() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in Path("runs").rglob("*") if path.is_file()}

    before = contents()
    api.predict("run", ["0.png"], checkpoint="best")
    assert contents() == before
