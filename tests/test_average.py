"""The moving average of the weights: evaluation uses it, and it is as reproducible as the weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lockstep import checkpoint
from lockstep.average import decay_at
from lockstep.data import open_dataset
from lockstep.evaluate import evaluate_leaf
from lockstep.replica import Replica
from lockstep.strategies import catchup
from tests.alone import set_up, tiny_recipe, train
from tests.conftest import ENDLESS, RECIPE, digest_in, run, start, stop_and_compare
from tests.test_resume import rows_of, wait_for_step
from tests.test_survival import wait_for_generation

RECIPE_WITH_AVERAGE = tiny_recipe(average=0.9)


def averages(replica: Replica) -> dict[str, torch.Tensor]:
    return replica.copy_state().average


def test_it_follows_its_formula_for_weights_and_statistics() -> None:
    """In step t the decay is min(0.2, (1 + t) / (10 + t)): 0.1, 2/11, 0.2; integers are the live ones."""
    recipe = tiny_recipe(average=0.2)
    expected = {name: tensor.double() for name, tensor in set_up(recipe)[0].copy_state().model.items()}
    for step in range(3):
        live = train(recipe, last=step + 1).copy_state().model
        decay = (0.1, 2 / 11, 0.2)[step]
        assert decay_at(step, 0.2) == pytest.approx(decay)
        expected = {name: decay * expected[name] + (1 - decay) * live[name] for name in expected}
    found = averages(train(recipe))
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        if tensor.is_floating_point():
            torch.testing.assert_close(tensor.double(), expected[name], rtol=1e-5, atol=1e-6)
        else:
            assert tensor.item() == 3


def test_it_changes_neither_weights_nor_digest() -> None:
    with_average, without = train(RECIPE_WITH_AVERAGE), train(tiny_recipe())
    assert with_average.digest() == without.digest()
    assert with_average.state_digest(3) != without.state_digest(3)
    assert averages(without) == {}


def test_evaluation_uses_it_and_leaves_the_weights_alone() -> None:
    trained = train(RECIPE_WITH_AVERAGE)
    source, config = open_dataset(trained.recipe.data, 0).test, trained.recipe.evaluation
    before = trained.state_digest(3)
    found = evaluate_leaf(trained, source, config, 0)
    assert trained.state_digest(3) == before
    plain = set_up(tiny_recipe())[0]
    state = trained.copy_state()
    plain.load(replace(state, average={}))
    live = evaluate_leaf(plain, source, config, 0)
    plain.load(replace(state, model=state.average, average={}))
    assert found == evaluate_leaf(plain, source, config, 0)
    assert found.loss != live.loss


def test_a_checkpoint_holds_it_and_a_resume_goes_on_with_it(tmp_path: Path) -> None:
    whole = train(RECIPE_WITH_AVERAGE).state_digest(3)
    half = train(RECIPE_WITH_AVERAGE, last=2)
    snapshot = checkpoint.Snapshot(2, half.copy_state(), None, -1)
    info = checkpoint.write(tmp_path, snapshot)
    assert info.state_digest == snapshot.state_digest() == half.state_digest(2)
    stored = checkpoint.load(info.path, dict(half.named_state()))
    assert train(RECIPE_WITH_AVERAGE, first=2, state=stored).state_digest(3) == whole
    # What evaluation uses can be loaded like any other weights.
    assert load_file(info.path / "average.safetensors").keys() == snapshot.state.model.keys()
    # Without what was stored it is another average, of the same weights.
    forgotten = train(RECIPE_WITH_AVERAGE, first=2, state=replace(stored, average={}))
    assert forgotten.state_digest(3) != whole
    assert forgotten.digest() == train(RECIPE_WITH_AVERAGE).digest()


def test_a_checkpoint_without_it_loads_and_a_damaged_one_is_found(tmp_path: Path) -> None:
    old = checkpoint.write(tmp_path, checkpoint.Snapshot(1, train(tiny_recipe(), last=1).copy_state(), None, -1))
    assert sorted(json.loads((old.path / "checkpoint.json").read_text())["files"]) == list(checkpoint.FILES)
    replica = set_up(RECIPE_WITH_AVERAGE)[0]
    replica.load(checkpoint.load(old.path, dict(replica.named_state())))
    state = replica.copy_state()
    assert all(torch.equal(state.average[name], state.model[name]) for name in state.model)
    new = checkpoint.write(tmp_path, checkpoint.Snapshot(2, train(RECIPE_WITH_AVERAGE).copy_state(), None, -1))
    (new.path / "average.safetensors").unlink()
    newest, problems = checkpoint.newest_good(tmp_path)
    assert newest == old
    assert "average.safetensors is missing" in problems[0]


def test_a_joiner_copies_it() -> None:
    giver, receiver = train(RECIPE_WITH_AVERAGE), set_up(replace(RECIPE_WITH_AVERAGE, seed=1))[0]
    catchup.unpack(catchup.pack(giver, set_up(RECIPE_WITH_AVERAGE)[2]), receiver)
    assert receiver.state_digest(3) == giver.state_digest(3)


AVERAGED = ["--set", "average=0.9"]


def results(name: str) -> tuple[str, list[tuple[int, float, float]]]:
    """The state digest of the last checkpoint, and all evaluations."""
    newest, _ = checkpoint.newest_good(Path("runs") / name / "checkpoints")
    assert newest is not None
    return newest.state_digest, [(row["step"], row["top1"], row["loss"]) for row in rows_of(name, "eval")]


def test_it_does_not_depend_on_the_number_of_workers(workspace: Path, undisturbed: tuple[str, list[float]]) -> None:
    """N = 1, 2: one average, and evaluations with it; the digest is that of the run without."""
    trained = {n: run("train", *RECIPE, *AVERAGED, "--workers", n, "--run", n) for n in ("1", "2")}
    assert digest_in(trained["1"]) == digest_in(trained["2"]) == undisturbed[0]
    assert results("1") == results("2")
    evaluated = run("evaluate", "2", "--workers", "1")
    assert evaluated.stdout.splitlines()[0] == trained["2"].stdout.splitlines()[0]


def test_a_joiner_goes_on_with_it(workspace: Path) -> None:
    """Every second step all members compare their states, the average included, and none is found wrong."""
    process = start("train", *ENDLESS, *AVERAGED, "--workers", "1", "--verify-every", "2", "--run", "run")
    wait_for_step(process, "run", 3)
    assert run("resize", "run", "2").returncode == 0
    wait_for_generation("run", 2)
    wait_for_step(process, "run", rows_of("run", "generation")[-1]["step"] + 5)
    stop_and_compare(process, "run", *AVERAGED)
    assert results("run")[0] == results("run-whole")[0]
    assert not rows_of("run", "corruption")
