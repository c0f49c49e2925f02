"""`--init`: training from weights in a file. They become a part of what the bits depend on, as the seed is."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from lockstep import checkpoint, initial, models, selection
from lockstep.config import Recipe
from lockstep.errors import UserError
from tests.alone import set_up, tiny_recipe
from tests.conftest import Command, digest_in
from tests.test_bad_input import refused
from tests.test_resume import CONSTANT, TINY

SHAPE = (3, 32, 32)
HEAD = ["15.weight", "15.bias"]
"""What depends on the number of classes in the demo's network."""


def network(num_classes: int = 10, seed: int = 7) -> nn.Module:
    torch.manual_seed(seed)
    model = models.build(tiny_recipe().model, num_classes, SHAPE)
    with torch.no_grad():
        for buffer in model.buffers():
            buffer.add_(3)
    return model


def save_torch(state: dict[str, Tensor], path: Path) -> None:
    torch.save(state, path)


def save_from_ddp(state: dict[str, Tensor], path: Path) -> None:
    torch.save({"epoch": 3, "state_dict": {f"module._orig_mod.{name}": one for name, one in state.items()}}, path)


def save_halved(state: dict[str, Tensor], path: Path) -> None:
    """Also in another type, which is widened."""
    save_file({name: tensor.bfloat16() for name, tensor in state.items() if tensor.is_floating_point()}, path)


SAVERS: dict[str, Callable[[dict[str, Tensor], Path], None]] = {
    "w.safetensors": save_file,
    "w.pt": save_torch,
    "ddp.pth": save_from_ddp,
    "pytorch_model.bin": save_torch,
}


def starting(path: str | Path, **changes: Any) -> Recipe:
    return selection.with_start(tiny_recipe(init=str(path), **changes))


def test_a_run_from_a_file_ends_on_one_digest_for_any_number_of_workers(lockstep: Command) -> None:
    """Every worker reads the file; a run that goes on does not need it."""
    save_file(network(num_classes=7).state_dict(), "w.safetensors")
    length = [*TINY, *CONSTANT, "--steps", "4"]
    one = lockstep("train", *length, "--init", "w.safetensors", "--workers", "1", "--run", "one")
    two = lockstep("train", *length, "--init", "w.safetensors", "--workers", "2", "--run", "two", "--stop-at", "2")
    note = "start anew: "
    said = [[line for line in result.stderr.splitlines() if note in line] for result in (one, two)]
    assert [len(lines) for lines in said] == [1, 1]
    assert " and ".join(HEAD) in said[0][0]
    Path("w.safetensors").unlink()
    digest = digest_in(one)
    assert digest_in(lockstep("resume", "two", "--workers", "1")) == digest
    stored = json.loads(Path("runs/one/config.json").read_text())["recipe"]
    assert stored["init"] == str(Path("w.safetensors").absolute())
    assert len(stored["init_sha256"]) == 64
    assert "w.safetensors: give --init a file" in refused(lockstep("train", "runs/one", "--run", "again"))


def test_servers_that_keep_the_weights_start_from_the_file_too(lockstep: Command) -> None:
    """With a learning rate of 0 the weights of the file are those of the result."""
    model = network()
    save_torch(model.state_dict(), Path("w.pt"))
    options = ["--strategy", "async", "--workers", "1", "--lr", "0", "--steps", "1", "--run", "run"]
    result = lockstep("train", *TINY, *CONSTANT, "--init", "w.pt", *options)
    assert result.returncode == 0, result.stderr
    newest, _ = checkpoint.newest_good(Path("runs/run/checkpoints"))
    assert newest is not None
    found = initial.read(newest.path / "model.safetensors")
    assert all(torch.equal(found[name], parameter) for name, parameter in model.named_parameters())


@pytest.mark.parametrize("name", SAVERS)
def test_weights_of_a_file_are_what_training_starts_from(workspace: Path, name: str) -> None:
    """Statistics, and the moving average, as well."""
    state = network().state_dict()
    SAVERS[name](state, Path(name))
    replica, _, _ = set_up(starting(name, average=0.9))
    assert replica.start() is None
    live, average = replica.copy_state().model, replica.copy_state().average
    assert all(torch.equal(live[name], state[name]) and torch.equal(average[name], state[name]) for name in state)


def test_halved_weights_and_old_files_without_counters(workspace: Path) -> None:
    state = network().state_dict()
    save_halved(state, Path("w.safetensors"))
    replica, _, _ = set_up(starting("w.safetensors"))
    replica.start()
    live = replica.copy_state().model
    assert all(torch.equal(live[n], t.bfloat16().float()) for n, t in state.items() if t.is_floating_point())
    assert {int(t) for n, t in live.items() if n.endswith("num_batches_tracked")} == {0}


@pytest.mark.parametrize("average", [0.0, 0.5])
def test_a_run_is_a_source_too(workspace: Path, average: float) -> None:
    """Its name, its directory or one of its checkpoints: with what it evaluates."""
    replica, strategy, _ = set_up(tiny_recipe(average=average))
    if replica.average is not None:
        replica.weights.add_(1)
        replica.average.update(range(100, 101))
    state = strategy.snapshot()
    directory = Path("runs/source")
    checkpoint.write(directory / "checkpoints", checkpoint.Snapshot(3, state, None, -1))
    (directory / "config.json").write_text("{}")
    expected = state.average or state.model
    assert average == 0 or not torch.equal(next(iter(state.model.values())), next(iter(expected.values())))
    for source in ("source", "runs/source", "last", "runs/source/checkpoints/step-000000003"):
        other, _, _ = set_up(starting(source))
        other.start()
        assert all(torch.equal(tensor, expected[name]) for name, tensor in other.copy_state().model.items())


def test_another_number_of_classes_keeps_the_fresh_head(workspace: Path) -> None:
    state = network(num_classes=5).state_dict()
    save_file(state, "w.safetensors")
    fresh, _, _ = set_up(tiny_recipe())
    replica, _, _ = set_up(starting("w.safetensors"))
    note = replica.start()
    before, after = fresh.copy_state().model, replica.copy_state().model
    assert (
        note
        == f"{HEAD[0]} and {HEAD[1]} start anew: {Path('w.safetensors').absolute()} is for another number of classes"
    )
    for name, tensor in after.items():
        assert torch.equal(tensor, before[name] if name in HEAD else state[name])


def renamed(state: dict[str, Tensor], old: str, new: str | None) -> dict[str, Tensor]:
    return {new if name == old and new else name: one for name, one in state.items() if name != old or new}


def reshaped(state: dict[str, Tensor], name: str, shape: tuple[int, ...]) -> dict[str, Tensor]:
    return {**state, name: torch.zeros(shape)}


def test_a_file_of_another_model_is_one_sentence(workspace: Path) -> None:
    state = network().state_dict()
    first, head = next(iter(state)), HEAD
    width = state[head[0]].shape[1]
    wrong: list[tuple[dict[str, Tensor], str]] = [
        (renamed(state, first, f"{first}s"), f"it has '{first}s'; the nearest name that the model has is '{first}'"),
        (renamed(state, first, None), f"it lacks '{first}'"),
        ({**state, "qqqqqqqqqqqqqqqqqqqq": torch.zeros(1)}, "it has 'qqqqqqqqqqqqqqqqqqqq'"),
        (reshaped(state, first, (1, 2, 3, 4)), f"'{first}' has shape (1, 2, 3, 4) there and"),
        (reshaped(reshaped(state, head[0], (5, width)), head[1], (6,)), f"'{head[0]}' has shape (5, {width}) there"),
        (reshaped(state, head[0], (5, width + 1)), f"'{head[0]}' has shape (5, {width + 1}) there"),
    ]
    for tensors, sentence in wrong:
        save_torch(tensors, Path("w.pt"))
        replica, _, _ = set_up(starting("w.pt"))
        before = replica.digest()
        with pytest.raises(UserError) as error:
            replica.start()
        assert str(error.value).startswith(f"{Path('w.pt').absolute()} is of another model: ")
        assert sentence in str(error.value)
        assert "\n" not in str(error.value)
        assert replica.digest() == before


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("was-executed",)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"weight": torch.zeros(1), "more": Evil()}, "holds more than weights"),
        (network(), "holds more than weights"),
        ({"epoch": 3}, "holds no weights by name"),
        (torch.zeros(3), "holds no weights by name"),
        (b"", "w.pt cannot be read as weights"),
        (b"nothing of the kind", "w.pt holds more than weights, or is no file of weights"),
        (b"\x08\0\0\0\0\0\0\0{broken}", "w.pt is a damaged safetensors file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_file_of_weights_is_one_sentence(workspace: Path, content: Any, sentence: str) -> None:
    """Nothing in a file is executed."""
    if isinstance(content, bytes):
        Path("w.pt").write_bytes(content)
    else:
        torch.save(content, "w.pt")
    with pytest.raises(UserError, match=sentence) as error:
        initial.read(Path("w.pt"))
    assert "\n" not in str(error.value)
    assert not Path("was-executed").exists()


def test_a_worker_that_has_not_the_file_of_the_run_says_so(workspace: Path) -> None:
    """Where hosts share no file system."""
    save_torch(network().state_dict(), Path("w.pt"))
    replica, _, _ = set_up(starting("w.pt"))
    save_torch(network(seed=8).state_dict(), Path("w.pt"))
    with pytest.raises(UserError, match=r"w.pt are not the file with which the run began: put them where every worker"):
        replica.start()
    with pytest.raises(UserError, match=r"w.pt is not the file any more that this recipe starts from"):
        selection.with_start(replica.recipe)
    assert selection.with_start(replace(replica.recipe, init_sha256=None)).init_sha256 != replica.recipe.init_sha256
    Path("w.pt").unlink()
    with pytest.raises(UserError, match=r"w.pt cannot be read here \(No such file.*put them where every worker sees"):
        replica.start()


def test_what_is_neither_a_file_nor_a_run_is_refused_before_the_start(lockstep: Command) -> None:
    answer = refused(lockstep("train", *TINY, "--init", "nowhere.pt", "--run", "run"))
    assert "there is no file nowhere.pt: give --init a file of weights, or a run" in answer
    with pytest.raises(UserError, match="there is no run in runs/ yet"):
        selection.with_start(tiny_recipe(init="last"))
    Path("w.pt").write_text("nothing")
    answer = refused(lockstep("train", *TINY, "--init", "w.pt", "--workers", "1", "--run", "run"))
    assert "holds more than weights" in answer


def test_the_file_of_a_recipe_in_a_file_lies_beside_it(lockstep: Command) -> None:
    Path("below").mkdir()
    save_torch(network().state_dict(), Path("below/w.pt"))
    Path("below/mine.toml").write_text('base = "demo"\ninit = "w.pt"\n')
    shown = json.loads(lockstep("config", "below/mine.toml").stdout)
    assert shown["init"] == str(Path("below/w.pt").absolute())
    shutil.rmtree("below")


def test_tied_weights_count_by_their_first_name(workspace: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    both = {"0.weight": torch.eye(2), "1.weight": torch.eye(2)}
    for found in (both, {"0.weight": torch.eye(2)}, {"1.weight": torch.eye(2)}):
        values, fresh = initial.fit(found, model, 2, Path("w.pt"))
        assert list(values) == ["0.weight"]
        assert torch.equal(values["0.weight"], torch.eye(2))
        assert not fresh
