"""`make bench-accuracy`: a session of several benchmarks that is interrupted, with trainings that cost nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import session
from bench.ledger import Ledger
from bench.results import Figure, Result
from bench.rounds import Say
from bench.trainings import DATA_VARIABLE
from tests.bench.trainings import FakeTrainings

NAMES = ["time-to-accuracy", "fast-cifar10", "tutorial-resnet18", "hour-cifar10", "resnet50-6n2"]


class Place:
    """Where the command writes, in place of the repository."""

    def __init__(self, where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.page, self.out, self._monkeypatch = where / "bench" / "RESULTS.md", where / "out", monkeypatch
        self.page.parent.mkdir()
        monkeypatch.setenv(DATA_VARIABLE, "")  # the command sets it; this takes it back after the test
        monkeypatch.setattr(command, "OUT", self.out)
        monkeypatch.setattr(command, "ROOT", where)

    def run(self, *arguments: str) -> int:
        self._monkeypatch.setattr(sys, "argv", ["bench", "--data", "/data", *arguments])
        return command.main()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTrainings:
    return FakeTrainings(monkeypatch, "bf16")


INTERRUPTED = {
    "time-to-accuracy": "--seed 3",
    "fast-cifar10": "--stop-at 100",
    "tutorial-resnet18": "tutorial_resnet18",
    "hour-cifar10": "--epochs 25",
    "resnet50-6n2": "resnet50-6n2-cifar10 4",
}


@pytest.mark.parametrize("name", NAMES)
def test_no_training_of_any_benchmark_is_done_twice(
    place: Place, fake: FakeTrainings, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert place.run(*NAMES) == 0
    whole, page = fake.calls[:], place.page.read_text()
    fake.calls.clear()
    fake.interrupted_by = INTERRUPTED[name]
    assert place.run(*NAMES) == 130
    assert capsys.readouterr().err == "\ninterrupted: the same command goes on behind the last training\n"
    cut = fake.calls.pop()
    fake.interrupted_by = ""
    assert place.run(*NAMES) == 0
    assert cut in whole
    assert fake.calls == whole
    said = capsys.readouterr().out
    for before in NAMES[: NAMES.index(name)]:
        assert f"{before}: it was finished in an earlier session; --fresh begins anew" in said
    assert [line for line in place.page.read_text().splitlines() if line.startswith("|")] == [
        line for line in page.splitlines() if line.startswith("|")
    ]


def test_a_session_that_ran_to_its_end_begins_anew(place: Place, fake: FakeTrainings) -> None:
    for _ in range(2):
        assert place.run("tutorial-resnet18", "resnet50-6n2") == 0
    assert fake.calls[5:] == fake.calls[:5]


def test_fresh_begins_anew(place: Place, fake: FakeTrainings) -> None:
    fake.interrupted_by = "resnet50-6n2-cifar10 2"
    assert place.run("tutorial-resnet18", "resnet50-6n2") == 130
    fake.interrupted_by = ""
    fake.calls.clear()
    assert place.run("--fresh", "tutorial-resnet18", "resnet50-6n2") == 0
    assert len(fake.calls) == 5


def test_other_data_begins_anew_and_says_so(
    place: Place, fake: FakeTrainings, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.interrupted_by = "resnet50-6n2-cifar10 4"
    assert place.run("resnet50-6n2") == 130
    fake.interrupted_by = ""
    fake.calls.clear()
    assert place.run("--data", "/others", "resnet50-6n2") == 0
    assert len(fake.calls) == 4
    said = capsys.readouterr().out
    assert "resnet50-6n2: an earlier session is not gone on with, because of another data" in said


def test_another_benchmark_in_between_leaves_the_interrupted_one(place: Place, fake: FakeTrainings) -> None:
    fake.interrupted_by = "resnet50-6n2-cifar10 4"
    assert place.run("resnet50-6n2") == 130
    fake.interrupted_by = ""
    assert place.run("tutorial-resnet18") == 0
    fake.calls.clear()
    assert place.run("resnet50-6n2") == 0
    assert fake.calls == ["lockstep resnet50-6n2-cifar10 4 --stop-at 1200"]


def test_the_time_of_a_benchmark_is_that_of_all_its_sessions(place: Place, fake: FakeTrainings) -> None:
    fake.interrupted_by = "resnet50-6n2-cifar10 4"
    assert place.run("resnet50-6n2") == 130
    ledger = place.out / "resnet50-6n2-session.json"
    plain = json.loads(ledger.read_text())
    ledger.write_text(json.dumps(plain | {"seconds": dict.fromkeys(plain["seconds"], 600.0)}))
    fake.interrupted_by = ""
    assert place.run("resnet50-6n2") == 0
    seconds = json.loads((place.out / "resnet50-6n2.json").read_text())["seconds"]
    assert 1800.0 <= seconds < 1860.0


def test_what_has_no_trainings_is_not_measured_again_either(
    place: Place, fake: FakeTrainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = []

    def startup(quick: bool, scratch: Path, say: Say) -> Result:
        measured.append(scratch)
        return Result("startup", "How soon?", [Figure("first step", "seconds", [1.0])])

    monkeypatch.setitem(command.ALONE, "startup", startup)
    fake.interrupted_by = "tutorial_resnet18"
    assert place.run("startup", "tutorial-resnet18") == 130
    fake.interrupted_by = ""
    assert place.run("startup", "tutorial-resnet18") == 0
    assert len(measured) == 1


@pytest.mark.parametrize(("trainings", "finished"), [([], False), (["seed 0"], True)])
def test_another_code_is_measured_anew_but_not_trained_anew(
    tmp_path: Path, trainings: list[str], finished: bool
) -> None:
    known = Ledger(tmp_path / "session.json", {})
    for key in trainings:
        known.add(key, {}, 1.0)
    assert not session.is_finished(known, "abc")
    known.add(session.FINISHED, "abc", 0.0)
    assert session.is_finished(known, "abc")
    assert session.is_finished(known, "def") == finished
