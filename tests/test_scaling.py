"""`--scale`: what earlier systems did with their number of workers, as a number in the recipe."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from lockstep import api, metrics
from lockstep.check import check_recipe
from lockstep.config import Recipe, Schedule
from lockstep.data.order import steps_of_epochs
from lockstep.errors import UserError
from lockstep.recipes.predecessors import resnet32_ray_cifar10, resnet50_horovod_cifar10
from lockstep.request import Request
from lockstep.scaling import scaled
from lockstep.schedule import learning_rate

H, R = resnet50_horovod_cifar10(), resnet32_ray_cifar10()


def rate_of(recipe: Recipe, size: int = 51200):  # type: ignore[no-untyped-def]
    num_steps = recipe.steps or steps_of_epochs(recipe.epochs or 0, size, recipe.global_batch)
    return learning_rate(recipe.schedule, num_steps, Fraction(size, recipe.global_batch)), num_steps


def test_the_rate_is_multiplied_after_a_warm_up_from_that_of_a_single_worker() -> None:
    """F41: in every batch a little more, over five epochs; the drops stay at their epochs."""
    trained = scaled(replace(H, scale=4.0))
    assert (trained.global_batch, trained.leaves, trained.leaf_batch, trained.scale) == (512, 4, 128, 1.0)
    rate, _ = rate_of(trained)
    assert [rate(step) for step in range(500)] == pytest.approx([0.01 + 0.03 * step / 500 for step in range(500)])
    steps = (0, 500, 1499, 1500, 2499, 2500, 3499, 3500)
    assert [rate(step) for step in steps] == pytest.approx([0.01, 0.04, 0.04, 4e-3, 4e-3, 4e-4, 4e-4, 4e-5])


def test_an_epoch_has_fewer_steps() -> None:
    """F62: as many as before, divided by the scale; a length in steps is divided too, and rounded up."""
    single, four = rate_of(H)[1], rate_of(scaled(replace(H, scale=4.0)))[1]
    assert (single, four) == (16000, 4000)
    in_steps = replace(H, epochs=None, steps=1001, scale=4.0)
    assert scaled(in_steps).steps == 251


def test_what_is_counted_in_steps_comes_earlier() -> None:
    schedule = Schedule(name="step", unit="steps", boundaries=(40, 61), factors=(0.1, 0.01), warmup=8, peak=30)
    trained = scaled(Recipe(name="s", schedule=schedule, steps=80, scale=4.0)).schedule
    assert (trained.boundaries, trained.warmup, trained.warmup_from, trained.peak) == ((10.0, 15.25), 2.0, 0.25, 7.5)
    fractions = replace(schedule, unit="fraction", boundaries=(0.5, 0.75), warmup=0.1)
    trained = scaled(Recipe(name="s", schedule=fractions, steps=80, scale=4.0)).schedule
    assert (trained.boundaries, trained.warmup, trained.warmup_from) == ((0.5, 0.75), 0.1, 0.25)


def test_boundaries_may_be_divided_by_the_square_root_instead() -> None:
    """F38: the rate stays, the batch grows."""
    trained = scaled(replace(R, scale=4.0))
    rate, num_steps = rate_of(trained)
    assert (trained.global_batch, num_steps) == (512, 45000)
    steps = (0, 19999, 20000, 29999, 30000, 39999, 40000, 44999)
    assert [rate(step) for step in steps] == pytest.approx([0.1, 0.1, 0.01, 0.01, 1e-3, 1e-3, 1e-4, 1e-4])
    rate, num_steps = rate_of(scaled(replace(R, scale=2.0)))
    assert num_steps == 63640
    assert [rate(step) for step in (28284, 28285)] == pytest.approx([0.1, 0.01])


def test_the_warm_up_of_a_scale_can_be_set() -> None:
    shorter = replace(H, scale=4.0, schedule=replace(H.schedule, scale_warmup=2))
    rate, _ = rate_of(scaled(shorter))
    assert [rate(step) for step in (0, 100, 200)] == pytest.approx([0.01, 0.025, 0.04])
    without = replace(H, scale=4.0, schedule=replace(H.schedule, scale_warmup=0))
    assert rate_of(scaled(without))[0](0) == pytest.approx(0.04)
    triangular = scaled(replace(H, scale=4.0, schedule=Schedule(name="triangular", lr=0.1))).schedule
    assert (triangular.lr, triangular.warmup, triangular.warmup_from) == (0.4, 0.0, 0.1)


def test_a_scale_of_one_changes_nothing_and_a_smaller_one_warms_nothing_up() -> None:
    assert scaled(H) is H
    half = scaled(replace(H, scale=0.5))
    assert (half.global_batch, half.schedule) == (64, replace(H.schedule, lr=0.005))
    assert scaled(half) is half


def test_a_scale_that_the_batch_does_not_take_is_refused() -> None:
    for scale, product in ((1.01, "129.28"), (1.015625, "130")):
        with pytest.raises(UserError, match=f"times the scale .* is {product}, which cannot be cut into 4 equal"):
            check_recipe(replace(H, scale=scale))
    check_recipe(replace(H, scale=1.5))
    check_recipe(replace(H, global_batch=6, scale=2.0))


@pytest.mark.timeout(180)
def test_a_scale_has_one_digest_for_every_number_of_workers(workspace: Path) -> None:
    """F41 F62: 4 leaves of 16 images and a quarter of the steps, whoever computes them."""
    settings = ["evaluation.max_leaves=1", "log_every=1"]

    def train(name: str, workers: int, steps: int, scale: float | None) -> str | None:
        request = Request(workers=workers, batch_size=16, steps=steps, scale=scale, settings=settings)
        return api.train("demo", request, run=name).digest

    digests = {workers: train(f"scaled-{workers}", workers, 16, 4.0) for workers in (1, 2, 4)}
    assert len(set(digests.values())) == 1, digests
    assert train("single", 1, 4, None) != digests[1]
    rows = [row for row in metrics.read(Path("runs/scaled-2/metrics.jsonl")) if row["kind"] == "train"]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert rows[0]["lr"] == pytest.approx(0.05)
    assert json.loads(Path("runs/scaled-2/config.json").read_text())["recipe"]["scale"] == 4.0
