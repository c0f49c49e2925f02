"""Time to accuracy: minutes side by side, and trainings that are not done twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import accuracy, results
from bench.__main__ import Remembering
from bench.accuracy import BARE, DDP, OURS, to_accuracy
from bench.ledger import Ledger
from bench.ratio import MIN_ROUNDS
from bench.results import Result
from bench.trainings import Memory, Trained, fastest_precision
from tests.bench.trainings import FakeTrainings


def trained(*course: tuple[float, float]) -> Trained:
    minutes, top1 = course[-1]
    return Trained(top1, minutes, 100, course=course)


def test_the_time_is_that_of_the_first_evaluation_that_shows_it() -> None:
    run = trained((1.0, 0.5), (2.0, 0.81), (3.0, 0.79))
    assert run.minutes_to(0.8) == 2.0
    assert run.minutes_to(0.9) is None


def test_ratios_are_of_seeds_that_both_brought_there() -> None:
    fast, slow, never = trained((2.0, 0.9)), trained((4.0, 0.9)), trained((9.0, 0.7))
    found = {OURS: [fast] * 6, BARE: [slow] * 6, DDP: [slow] * 5 + [never]}
    plain = results.to_plain(to_accuracy(found, 0.8, "fp32"), {}, "", 1.0)
    bare, ddp = plain["figures"]
    assert (bare["median"], bare["interval"], bare["verdict"]) == (0.5, [0.5, 0.5], "met")
    assert (len(ddp["samples"]), ddp["verdict"]) == (5, "not resolved")
    assert plain["notes"] == [f"{DDP} reached it with 5 of 6 seeds."]


def test_a_finished_training_is_not_done_again(tmp_path: Path) -> None:
    path, made = tmp_path / "session.json", trained((1.0, 0.5), (2.0, 0.75))
    assert Memory(Ledger(path, {})).recall("seed 0", lambda: made) == made
    again = Memory(Ledger(path, {}))
    assert again.recall("seed 0", lambda: pytest.fail("it was trained again")) == made


@pytest.mark.parametrize(
    ("flags", "precision"),
    [
        ("fpu avx2 avx512f avx512_bf16", "bf16"),
        ("fpu amx_bf16 amx_tile", "bf16"),
        ("fpu avx2 avx512f avx512_vnni", "fp32"),
    ],
)
def test_bf16_is_for_processors_that_have_it(tmp_path: Path, flags: str, precision: str) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nmodel name\t: the one with avx512_bf16\nflags\t\t: {flags}\nbugs\t\t:\n")
    assert fastest_precision(cpuinfo) == precision


def test_without_a_description_of_the_processor_it_is_fp32(tmp_path: Path) -> None:
    assert fastest_precision(tmp_path / "cpuinfo") == "fp32"


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_fast_cifar10_and_ddp_train_in_one_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    fake = FakeTrainings(monkeypatch, precision)
    ours = [f"lockstep fast-cifar10 2 --seed {seed} --precision {precision}" for seed in (0, 1, 2)]
    begun = [f"lockstep fast-cifar10 {workers} --precision {precision} --stop-at 100" for workers in (1, 2)]
    result = accuracy.fast_cifar10(False, tmp_path, fake.say, fake.memory(tmp_path))
    assert fake.calls == [ours[0], f"plain fast-cifar10 seed 0, 2 processes --precision {precision}", *ours[1:], *begun]
    assert f"all in {precision}. The data is a JPEG copy of CIFAR-10" in result.question


def test_fast_cifar10_has_a_goal_and_a_better_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTrainings(monkeypatch, "fp32")
    fake.minutes |= {"--seed 1": 17.0}
    fake.top1 |= {"--seed 2": 0.89}
    figures = judged(accuracy.fast_cifar10(False, tmp_path, fake.say, fake.memory(tmp_path)))
    assert figures == [
        ("Lockstep: top1, the worst seed", 0.89, "not met"),
        ("Lockstep: minutes, the slowest seed, the first goal", 17.0, "met"),
        ("Lockstep: minutes, the slowest seed, the second goal", 17.0, "not met"),
        ("digests that one and two workers give in 100 steps", 1, "met"),
    ]


@pytest.mark.parametrize("benchmark", [accuracy.fast_cifar10, accuracy.resnet50_6n2])
def test_bits_that_depend_on_the_number_of_workers_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, benchmark: Remembering
) -> None:
    fake = FakeTrainings(monkeypatch, "fp32")
    fake.has_one_digest = False
    figures = judged(benchmark(False, tmp_path, fake.say, fake.memory(tmp_path)))
    (found,) = [(value, verdict) for what, value, verdict in figures if what.startswith("digests")]
    assert found[0] > 1
    assert found[1] == "not met"


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_everyone_has_the_same_precision_on_the_way_to_an_accuracy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    fake = FakeTrainings(monkeypatch, precision)
    result = accuracy.time_to_accuracy(False, tmp_path, fake.say, fake.memory(tmp_path))
    alike, often = f"--epochs 2.0 --precision {precision}", "--set evaluation.every_steps=24 --set evaluation.views=one"
    assert fake.calls[:3] == [
        f"lockstep fast-cifar10 2 {alike} --seed 0 {often}",
        f"plain fast-cifar10 seed 0, 1 processes {alike} {often}",
        f"plain fast-cifar10 seed 0, 2 processes {alike} {often}",
    ]
    assert len(fake.calls) == 3 * MIN_ROUNDS
    assert f"computes in {precision}" in result.question


def test_the_tutorials_network_has_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTrainings(monkeypatch, "bf16")
    result = accuracy.tutorial_resnet18(False, tmp_path, fake.say, fake.memory(tmp_path))
    assert accuracy.tutorial_resnet18(False, tmp_path, fake.say, fake.memory(tmp_path)) == result
    assert fake.calls == ["plain tutorial_resnet18 seed 0, 2 processes for 60 min"], "once, the hour is remembered"
    assert judged(result) == [("top1 after the time", 0.91, None)]
    assert "in fp32" in result.question
    assert "JPEG copy" in result.question


@pytest.mark.parametrize(
    ("top1", "minutes", "verdicts"), [(0.931, 61.0, ("met", "not met")), (0.929, 59.0, ("not met", "met"))]
)
def test_the_hour_has_a_goal_for_the_accuracy_and_one_for_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, top1: float, minutes: float, verdicts: tuple[str, str]
) -> None:
    fake = FakeTrainings(monkeypatch, "bf16")
    fake.top1 |= {"--epochs 25": top1}
    fake.minutes |= {"--epochs 25": minutes}
    result = accuracy.hour_cifar10(False, tmp_path, fake.say, fake.memory(tmp_path))
    assert accuracy.hour_cifar10(False, tmp_path, fake.say, fake.memory(tmp_path)) == result
    options = "--precision bf16 --epochs 25 --set model.options.width=96 --set data.crop_padding=4 --set data.cutout=8"
    assert fake.calls == [f"lockstep fast-cifar10 2 {options}"], "once, the hour is remembered"
    reached, taken = verdicts
    assert judged(result) == [("Lockstep: top1", top1, reached), ("Lockstep: minutes", minutes, taken)]
    assert options in result.question
    assert "JPEG copy" in result.question


def test_the_table_has_one_two_and_four_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTrainings(monkeypatch, "bf16")
    result = accuracy.resnet50_6n2(False, tmp_path, fake.say, fake.memory(tmp_path))
    fitting = 10 * 60 * 2  # ten minutes at two steps a second
    assert fake.calls == [
        "lockstep resnet50-6n2-cifar10 1 --stop-at 20 --set evaluation.max_leaves=1",
        *(f"lockstep resnet50-6n2-cifar10 {workers} --stop-at {fitting}" for workers in (1, 2, 4)),
    ]
    assert [row[:3] for row in result.table[1:]] == [[workers, "2.00", "256"] for workers in ("1", "2", "4")]
    assert judged(result) == [("digests", 1, "met"), ("accuracies", 1, "met")]
    assert "The data is the JPEG copy of CIFAR-10." in result.question


def judged(result: Result) -> list[tuple[str, float, str | None]]:
    plain = results.to_plain(result, {}, "", 1.0)
    return [(figure["what"], figure["median"], figure["verdict"]) for figure in plain["figures"]]
