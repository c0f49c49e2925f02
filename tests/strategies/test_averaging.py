"""Averaging of weights: what a round computes, and that nothing but the leaves decides it."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep import checkpoint, philox
from lockstep.average import decay_at
from lockstep.config import Job, Optimizer, Recipe
from lockstep.data import open_dataset
from lockstep.data.order import samples_of_leaf
from lockstep.device import Device
from lockstep.engines.local import LOOPBACK_INTERFACE
from lockstep.errors import UserError
from lockstep.exchange import tree, volume
from lockstep.exchange.flat import Vector
from lockstep.exchange.group import Group, listen
from lockstep.generation import Generation, Member
from lockstep.membership import SentBack
from lockstep.pictures import Pictures
from lockstep.replica import Replica
from lockstep.reporter import Reporter
from lockstep.step import Step
from lockstep.strategies import averaging, catchup
from lockstep.strategies.synchronous import transfer
from tests.alone import set_up, tiny_recipe, train
from tests.exchange.test_group import in_threads
from tests.test_replica import all_leaves

OPTIMIZERS = {
    "sgd": Optimizer(momentum=0.9, nesterov=True, weight_decay=5e-4),
    "plain": Optimizer(momentum=0.0),
    "uncorrected": Optimizer(momentum=0.9, momentum_correction=False, clip_norm=0.5),
    "adamw": Optimizer(name="adamw", clip_norm=0.1, decay="kernels"),
    "muon": Optimizer(name="muon", momentum=0.6),
}


def job_of(local_steps: int, outer: str = "none") -> Job:
    return Job(workers=1, strategy="averaging", local_steps=local_steps, outer=outer)  # type: ignore[arg-type]


def steps_of(count: int, **changes: object) -> Recipe:
    return replace(tiny_recipe(**changes), steps=count)


def in_tree(parts: list[Tensor]) -> Tensor:
    one, two, three, four = parts
    return ((one + two) + (three + four)) * 0.25


def in_chain(parts: list[Tensor]) -> Tensor:
    one, two, three, four = parts
    return (((one + two) + three) + four) * 0.25


def by_hand(
    recipe: Recipe, local_steps: int, outer: bool = False, mean: Callable[[list[Tensor]], Tensor] = in_tree
) -> dict[str, Tensor]:
    """The same in plain PyTorch: four models with optimizers of their own, averaged every so many steps."""
    replica, strategy, _ = set_up(recipe)
    strategy.close()
    source, config = open_dataset(recipe.data, recipe.seed).train, recipe.optimizer
    shared, state, momentum = copy.deepcopy(replica.model), dict[str, Any](), dict[str, Tensor]()
    num_steps = recipe.steps or 0
    for first in range(0, num_steps, local_steps):
        models, optimizers = [], []
        for leaf in range(4):
            model = copy.deepcopy(shared)
            optimizer = torch.optim.SGD(
                model.parameters(),
                lr=0.0,
                momentum=config.momentum,
                nesterov=config.nesterov,
                weight_decay=config.weight_decay,
                fused=True,
            )
            if state:
                optimizer.load_state_dict({**optimizer.state_dict(), "state": copy.deepcopy(state)})
            for step in range(first, min(first + local_steps, num_steps)):
                samples = samples_of_leaf(recipe.seed, len(source), recipe.global_batch, 4, step, leaf)
                images, labels = replica.device.put(source.fetch(samples), recipe.channels_last)
                torch.manual_seed(philox.leaf_seed(recipe.seed, step, leaf))
                optimizer.zero_grad()
                F.cross_entropy(model(replica.preprocess.normalize(images)), labels).backward()
                optimizer.param_groups[0]["lr"] = replica.learning_rate(step)
                optimizer.step()
            models.append(model)
            optimizers.append(optimizer.state_dict()["state"])
        start = {name: parameter.detach().clone() for name, parameter in shared.named_parameters()}
        together = [model.state_dict() for model in models]
        shared.load_state_dict(
            {
                name: mean([one[name] for one in together]) if tensor.is_floating_point() else tensor
                for name, tensor in together[0].items()
            }
        )
        state = {i: {"momentum_buffer": mean([o[i]["momentum_buffer"] for o in optimizers])} for i in optimizers[0]}
        if outer:
            nesterov(shared, start, momentum)
    return {name: tensor.detach() for name, tensor in shared.state_dict().items()}


def nesterov(model: nn.Module, start: dict[str, Tensor], momentum: dict[str, Tensor]) -> None:
    """The outer step of DiLoCo, by torch's own optimizer."""
    for name, parameter in model.named_parameters():
        moved = nn.Parameter(start[name].clone())
        moved.grad = start[name] - parameter.detach()
        optimizer = torch.optim.SGD([moved], lr=0.7, momentum=0.9, nesterov=True, foreach=False)
        if name in momentum:
            optimizer.state[moved]["momentum_buffer"] = momentum[name]
        optimizer.step()
        momentum[name] = optimizer.state[moved]["momentum_buffer"]
        parameter.data.copy_(moved.detach())


@pytest.mark.parametrize("outer", [False, True], ids=["", "nesterov"])
def test_it_is_four_models_that_are_averaged_in_the_order_of_the_tree(outer: bool) -> None:
    """F51: seven steps in rounds of three, the last cut short, to the bit. The control adds in a chain."""
    recipe = steps_of(7)
    found = train(recipe, job_of(3, "nesterov" if outer else "none")).copy_state().model
    expected = by_hand(recipe, 3, outer)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)
    chained = by_hand(recipe, 3, outer, in_chain)
    assert not all(torch.equal(found[name], chained[name]) for name in found)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("outer", ["none", "nesterov"])
def test_a_contribution_leaves_the_replica_as_it_was(optimizer: str, outer: str) -> None:
    """Between two leaves, before the first round and later: so leaves may be computed in any order."""
    recipe = steps_of(4, optimizer=OPTIMIZERS[optimizer], average=0.9)
    replica, strategy, step = set_up(recipe, job_of(2, outer))
    results = []
    for _ in range(2):
        before = replica.state_digest(step.index)
        leaves = all_leaves(step)
        forwards = [strategy.contribution(leaf).flat.clone() for leaf in leaves]
        assert replica.state_digest(step.index) == before
        backwards = [strategy.contribution(leaf).flat.clone() for leaf in reversed(leaves)]
        assert all(torch.equal(one, other) for one, other in zip(forwards, reversed(backwards), strict=True))
        assert torch.equal(strategy.recompute(step.index, 2).flat, forwards[2])
        results.append(forwards[0])
        step = one_round(strategy, step)
    assert not torch.equal(*results)
    strategy.close()


def one_round(strategy: Any, step: Step) -> Step:
    for leaf in step.missing():
        step.hold(leaf, strategy.contribution(leaf))
    strategy.exchange(step)
    strategy.apply(step)
    return step.next()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("outer", ["none", "nesterov"])
def test_who_computed_nothing_gets_the_same_state(optimizer: str, outer: str) -> None:
    """The result of a round is all that a member behind needs: counters, the moving average, outer momentum."""
    recipe, job = steps_of(5, optimizer=OPTIMIZERS[optimizer], average=0.9), job_of(2, outer)
    replica, strategy, step = set_up(recipe, job)
    idle, other, behind = set_up(recipe, job)
    while step.index < 5:
        for leaf in step.missing():
            step.hold(leaf, strategy.contribution(leaf))
        strategy.exchange(step)
        behind.reduced.flat.copy_(step.reduced.flat)
        strategy.apply(step)
        other.apply(behind)
        step, behind = step.next(), behind.next()
        assert idle.state_digest(step.index) == replica.state_digest(step.index)
    strategy.close()
    other.close()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("outer", ["none", "nesterov"])
def test_a_checkpoint_of_a_round_goes_on_to_the_same_bits(optimizer: str, outer: str, tmp_path: Path) -> None:
    """What was averaged, and the outer momentum; the control forgets it."""
    recipe, job = steps_of(5, optimizer=OPTIMIZERS[optimizer]), job_of(2, outer)
    whole = train(recipe, job).state_digest(5)
    half = train(recipe, job, last=4)
    info = checkpoint.write(tmp_path, checkpoint.Snapshot(4, half.copy_state(), None, -1))
    stored = checkpoint.load(info.path, dict(half.named_state()))
    assert train(recipe, job, state=stored, first=4).state_digest(5) == whole
    names = {name for name in stored.optimizer if name.endswith(f"/{averaging.OUTER_SLOT}")}
    assert len(names) == (len(half.layout.gradients) if outer == "nesterov" else 0)
    for name in names:
        del stored.optimizer[name]
    assert (train(recipe, job, state=stored, first=4).state_digest(5) == whole) == (not names)


def test_a_joiner_copies_the_outer_momentum() -> None:
    job = job_of(2, "nesterov")
    giver, (receiver, _, step) = train(steps_of(4), job), set_up(steps_of(4, seed=1), job)
    catchup.unpack(catchup.pack(giver, step), receiver)
    assert receiver.state_digest(4) == giver.state_digest(4)
    assert any(name.endswith(averaging.OUTER_SLOT) for name in receiver.copy_state().optimizer)


def largest_difference(one: Replica, other: Replica) -> float:
    return (one.weights - other.weights).abs().max().item()


def test_with_one_local_step_sgd_is_that_of_allreduce_but_for_the_rounding() -> None:
    """SGD is linear in the gradient, so the mean of updates is the update of the mean; AdamW is not."""
    sgd, adamw = (steps_of(3, optimizer=OPTIMIZERS[name]) for name in ("sgd", "adamw"))
    averaged, added = train(sgd, job_of(1)), train(sgd)
    assert averaged.digest() != added.digest()
    assert largest_difference(averaged, added) < 1e-6
    assert largest_difference(train(sgd, job_of(3)), added) > 1e-4
    assert largest_difference(train(adamw, job_of(1)), train(adamw)) > 1e-4


def test_the_moving_average_forgets_as_much_in_a_round_as_in_its_steps() -> None:
    recipe = steps_of(5, average=0.5)
    start = set_up(recipe)[0].weights.clone()
    first = train(recipe, job_of(3), last=3).weights
    trained = train(recipe, job_of(3))
    decays = [decay_at(0, 0.5) * decay_at(1, 0.5) * decay_at(2, 0.5), decay_at(3, 0.5) * decay_at(4, 0.5)]
    expected = start.lerp(first, 1 - decays[0]).lerp(trained.weights, 1 - decays[1])
    assert trained.average is not None
    found = trained.average.named()
    for place in trained.layout.gradients:
        torch.testing.assert_close(found[place.name], place.view(expected), rtol=1e-5, atol=1e-7)


def test_rows_are_means_over_all_local_steps() -> None:
    """Loss and hits of every leaf in every local step, also where a row has a long round and a short one."""
    recipe = steps_of(5, log_every=5)
    replica, strategy, step = set_up(recipe, job_of(3))
    alone = [[], []]  # type: list[list[float]]
    rows = list[dict[str, Any]]()
    step.membership.send = lambda message: rows.append(message["row"])  # type: ignore[method-assign]
    reporter = Reporter(recipe, replica, step.membership)
    gradient = replica.gradient

    def noting(*arguments: Any) -> Vector:
        vector = gradient(*arguments)
        alone[0].append(vector.counts[0].item())
        alone[1].append(vector.counts[1].item())
        return vector

    replica.gradient = noting  # type: ignore[assignment, method-assign]
    while step.index < 5:
        for leaf in step.missing():
            step.hold(leaf, strategy.contribution(leaf))
        strategy.exchange(step)
        strategy.apply(step)
        reporter.count(step)
        step = step.next()
        reporter.report(step, is_first=True, at_end=False)
    strategy.close()
    assert len(alone[0]) == 4 * 5
    (row,) = rows
    assert row["step"] == 5
    assert row["loss"] == pytest.approx(sum(alone[0]) / 20)
    assert row["top1"] == pytest.approx(sum(alone[1]) / 80)
    assert row["images_per_second"] == pytest.approx(16 * row["steps_per_second"])


def test_images_are_read_ahead_in_the_order_of_local_steps() -> None:
    """Leaf by leaf, each with all steps of its round, then the next round; whatever was read ahead is used."""
    _, strategy, step = set_up(steps_of(6), job_of(3))
    read = strategy._read
    keys = list[tuple[int, int]]()

    def noting(*key: int) -> Any:
        keys.append(key)  # type: ignore[arg-type]
        return read(*key)

    strategy._prefetcher._read = noting
    for _ in range(2):
        step = one_round(strategy, step)
    strategy.close()
    rounds = [range(3), range(3, 6)]
    assert keys[:24] == [(index, leaf) for steps in rounds for leaf in range(4) for index in steps]


def test_histograms_are_those_of_weights_alone() -> None:
    replica, strategy, step = set_up(steps_of(6), job_of(2))
    sent = list[dict[str, Any]]()
    step.membership.send = sent.append  # type: ignore[assignment, method-assign]
    pictures = Pictures(True, 3, replica, strategy, step.membership)
    pictures.show_samples(step)
    while step.index < 6:
        step = one_round(strategy, step)
        pictures.show_histograms(step, evaluated=False)
    strategy.close()
    assert [message["step"] for message in sent[1:]] == [4, 6]
    assert {tag.split("/")[0] for tag in sent[1]["histograms"]} == {"weights"}


def test_a_promise_speaks_of_the_end_of_a_round_that_is_done() -> None:
    """Whoever has the result of a round is ahead by the whole round; who is sent back is at the snapshot."""
    _, strategy, step = set_up(steps_of(8), job_of(3))
    sent = list[dict[str, Any]]()
    membership = step.membership
    membership.send = sent.append  # type: ignore[assignment, method-assign]
    step.restart(6)
    for leaf in all_leaves(step)[:2]:
        step.hold(leaf, strategy.contribution(leaf))
    membership._promise(2)
    step.done = True
    membership._promise(3)
    membership.position = SentBack(3)
    membership._promise(4)
    assert [(message["step"], message["held"]) for message in sent] == [(6, [0, 1]), (8, []), (3, [])]
    strategy.close()


def test_a_gradient_is_no_contribution() -> None:
    """A loop of one's own that makes gradients would average them with weights."""
    replica, strategy, step = set_up(steps_of(4), job_of(2))
    leaf = step.leaf(0)
    with pytest.raises(UserError, match=r"calls strategy\.contribution"):
        step.hold(leaf, replica.gradient(strategy.read(leaf), leaf.seed, 0))
    strategy.close()


@pytest.mark.parametrize("members", [2, 4])
def test_workers_send_as_many_bytes_as_the_formula_says(members: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted where they are sent, over all workers of a round."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", LOOPBACK_INTERFACE)
    _, strategy, step = set_up(steps_of(6), job_of(3))
    contributions = [strategy.contribution(leaf) for leaf in all_leaves(step)]
    store, address = listen("127.0.0.1")
    shares = tuple(tuple(share) for share in tree.share_leaves(4, members))
    generation = Generation(1, tuple(Member(i, address) for i in range(members)), 4, "secret", 0, shares)
    sent = dict[int, int]()
    leaves = all_leaves(step)

    def work(rank: int) -> None:
        part = step.alone(0)
        for leaf in shares[rank]:
            held = part.pool.take()
            held.flat.copy_(contributions[leaf].flat)
            part.hold(leaves[leaf], held)
        group = Group(generation, rank, Device("cpu", 1), "127.0.0.1", threading.Condition())
        group.connect(lambda: False)
        transfer(group, part, 4, lambda: False)
        sent[rank] = group.traffic.sent

    in_threads(members, work)
    strategy.close()
    del store
    length = step.reduced.flat.numel()
    assert sum(sent.values()) / members / 3 == 4 * volume.averaging_least(length, members, 3)
    # Weights, momentum and statistics, but for the padding: twice what allreduce sends in a step.
    replica = set_up(steps_of(6))[0]
    assert length - replica.layout.length == replica.weights.numel()
