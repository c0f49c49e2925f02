"""Updates against their formulas, and an optimizer's state there and back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from lockstep import checkpoint, optim
from lockstep.config import Group, Optimizer, Schedule
from lockstep.errors import UserError
from lockstep.replica import Replica
from lockstep.schedule import learning_rate
from tests.alone import set_up, tiny_recipe, train

RATE = learning_rate(Schedule(name="step", lr=0.5, unit="steps", boundaries=(2, 3), factors=(0.1, 0.2)), 5, 1.0)


def updates(config: Optimizer, num_steps: int = 5) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """A kernel and a bias after each step, and the gradients of both that were applied."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = optim.build(config, model)
    weights, biases, gradients = [as_array(model.weight)], [as_array(model.bias)], []
    for step in range(num_steps):
        model.weight.grad, model.bias.grad = torch.randn(2, 3), torch.randn(2)
        gradients.append((as_array(model.weight.grad), as_array(model.bias.grad)))
        optim.update(optimizer, config, RATE, step)
        weights.append(as_array(model.weight))
        biases.append(as_array(model.bias))
    return weights, biases, gradients  # type: ignore[return-value]


def as_array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().double().numpy().copy()


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd_momentum_and_nesterov_follow_their_formulas(momentum: float, nesterov: bool) -> None:
    """F36: v = m v + g; w = w - lr v, or with Nesterov w - lr (g + m v); g with the decay."""
    weights, _, gradients = updates(Optimizer(momentum=momentum, nesterov=nesterov, weight_decay=0.01))
    expected, velocity = weights[0], np.zeros((2, 3))
    for step in range(5):
        gradient = gradients[step][0] + 0.01 * expected
        velocity = momentum * velocity + gradient
        expected = expected - RATE(step) * (gradient + momentum * velocity if nesterov else velocity)
        np.testing.assert_allclose(weights[step + 1], expected, rtol=1e-5, atol=1e-6)


def test_adamw_follows_its_formula() -> None:
    config = Optimizer(name="adamw", betas=(0.8, 0.95), epsilon=1e-6, weight_decay=0.1)
    weights, _, gradients = updates(config)
    expected, mean, square = weights[0], np.zeros((2, 3)), np.zeros((2, 3))
    for step in range(5):
        gradient, rate = gradients[step][0], RATE(step)
        mean, square = 0.8 * mean + 0.2 * gradient, 0.95 * square + 0.05 * gradient**2
        unbiased, root = mean / (1 - 0.8 ** (step + 1)), np.sqrt(square / (1 - 0.95 ** (step + 1)))
        expected = expected * (1 - rate * 0.1) - rate * unbiased / (root + 1e-6)
        np.testing.assert_allclose(weights[step + 1], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_decay_reaches_everything_or_kernels_alone(name: str) -> None:
    """F37: with "kernels" biases (and BatchNorm's parameters, which have one dimension too) do not decay."""
    config = Optimizer(name=name, weight_decay=0.5)  # type: ignore[arg-type]
    none, everything, kernels = (
        updates(one)[:2] for one in (replace(config, weight_decay=0.0), config, replace(config, decay="kernels"))
    )
    for kind, decays in ((0, True), (1, False)):
        assert not np.array_equal(none[kind][-1], everything[kind][-1])
        np.testing.assert_array_equal(kernels[kind][-1], (everything if decays else none)[kind][-1])


def test_what_decays_in_a_network() -> None:
    """F37."""
    model = set_up(tiny_recipe())[0].model
    names = {parameter: name for name, parameter in model.named_parameters()}
    decaying, rest = optim.groups(Optimizer(weight_decay=0.1, decay="kernels"), model)
    assert {parameter.dim() for parameter in decaying["params"]} == {2, 4}
    assert {parameter.dim() for parameter in rest["params"]} == {1}
    assert (decaying["weight_decay"], rest["weight_decay"]) == (0.1, 0.0)
    assert len(decaying["params"]) + len(rest["params"]) == len(names)
    (all_,) = optim.groups(Optimizer(weight_decay=0.1), model)
    assert all_["params"] == list(names)


@pytest.mark.parametrize("is_corrected", [True, False])
@pytest.mark.parametrize("nesterov", [True, False])
def test_momentum_is_corrected_while_the_rate_changes_unless_asked_otherwise(
    is_corrected: bool, nesterov: bool
) -> None:
    """F42: against Keras' formula, which has the rate in its velocity, with Horovod's factor b / a on the momentum of
    the step in which the rate goes from a to b (Goyal et al. 2017, 2.1) and without."""
    config = Optimizer(momentum=0.9, nesterov=nesterov, weight_decay=0.0, momentum_correction=is_corrected)
    weights, _, gradients = updates(config)
    expected, velocity = weights[0], np.zeros((2, 3))
    for step in range(5):
        factor = RATE(step) / RATE(max(0, step - 1)) if is_corrected else 1.0
        past, gradient = factor * velocity, RATE(step) * gradients[step][0]
        velocity = 0.9 * past + gradient
        expected = expected - (gradient + 0.9 * velocity if nesterov else velocity)
        np.testing.assert_allclose(weights[step + 1], expected, rtol=1e-5, atol=1e-6)
    other = updates(replace(config, momentum_correction=not is_corrected))[0]
    assert np.array_equal(weights[2], other[2])
    assert np.abs(weights[3] - other[3]).max() > 0.1


def test_what_an_uncorrected_momentum_is_multiplied_by_is_a_function_of_the_step() -> None:
    """F42: so a resume needs to know nothing of the rate before it; rates of 0 do no harm."""
    assert [optim.uncorrected_factor(RATE, step) for step in range(5)] == pytest.approx([1.0, 1.0, 10.0, 0.5, 1.0])
    assert [optim.uncorrected_factor(lambda step: float(step == 1), step) for step in range(3)] == [1.0, 0.0, 1.0]


def test_a_group_may_have_a_rate_of_its_own() -> None:
    model = nn.Linear(3, 2)
    groups: list[optim.Group] = [{"params": [model.weight], "lr_factor": 0.25}, {"params": [model.bias]}]
    optimizer = torch.optim.SGD(groups, lr=0.0)
    optim.set_learning_rate(optimizer, 0.8)
    assert [group["lr"] for group in optimizer.param_groups] == [0.2, 0.8]


def one_step(replica: Replica, gradients: torch.Tensor, step: int = 0) -> torch.Tensor:
    """How far the weights move; the vector that was applied must stay as it is."""
    vector, before = replica.pool.take(), replica.weights.clone()
    vector.flat.zero_()
    vector.flat_gradients.copy_(gradients)
    whole = vector.flat.clone()
    replica.apply(vector, step)
    assert torch.equal(vector.flat, whole)  # someone behind may be sent it
    return before - replica.weights


def test_gradients_are_clipped_to_a_norm_over_the_whole_model() -> None:
    plain = Optimizer(momentum=0.0, weight_decay=0.0)
    schedule = Schedule(lr=1.0)
    replica = set_up(tiny_recipe(optimizer=replace(plain, clip_norm=2.0), schedule=schedule))[0]
    gradients = torch.zeros_like(replica.weights)
    for place in replica.layout.gradients:
        place.view(gradients).normal_()
    assert gradients.norm() > 10
    moved = one_step(replica, gradients)
    torch.testing.assert_close(moved, gradients * (2.0 / gradients.norm()), rtol=1e-3, atol=1e-6)
    small = gradients / (2 * gradients.norm())
    unclipped = set_up(tiny_recipe(optimizer=plain, schedule=schedule))[0]
    clipped = set_up(tiny_recipe(optimizer=replace(plain, clip_norm=2.0), schedule=schedule))[0]
    assert torch.equal(one_step(clipped, small), one_step(unclipped, small))
    assert optim.clip_factor(torch.zeros(4), 1.0) == 1.0


ADAMW = Optimizer(name="adamw", clip_norm=0.1, decay="kernels")
UNCORRECTED = Optimizer(momentum=0.9, nesterov=True, momentum_correction=False, clip_norm=0.5)


@pytest.mark.parametrize("config", [ADAMW, UNCORRECTED], ids=["adamw", "uncorrected"])
def test_a_resume_goes_on_to_the_same_bits(config: Optimizer, tmp_path: object) -> None:
    """F42 and AdamW, whose count of steps is a tensor; the control forgets the optimizer's state."""
    recipe = tiny_recipe(optimizer=config)
    whole = train(recipe).state_digest(3)
    half = train(recipe, last=2)
    info = checkpoint.write(tmp_path, checkpoint.Snapshot(2, half.copy_state(), None, -1))  # type: ignore[arg-type]
    stored = checkpoint.load(info.path, dict(half.named_state()))
    assert train(recipe, state=stored, first=2).state_digest(3) == whole
    assert train(recipe, state=replace(stored, optimizer={}), first=2).state_digest(3) != whole


@pytest.mark.parametrize(
    "change",
    [ADAMW, UNCORRECTED, Optimizer(decay="kernels"), Optimizer(clip_norm=0.01)],
    ids=["adamw", "uncorrected", "decay", "clip"],
)
def test_every_setting_reaches_the_weights(change: Optimizer) -> None:
    assert train(tiny_recipe(optimizer=change)).digest() != train(tiny_recipe(optimizer=Optimizer())).digest()


def test_labels_are_smoothed_in_training_and_not_in_evaluation() -> None:
    from lockstep.data import open_dataset
    from lockstep.evaluate import evaluate_leaf

    recipe = tiny_recipe()
    source = open_dataset(recipe.data, 0).test
    losses, evaluated = [], []
    for smoothing in (0.0, 0.2):
        replica, strategy, step = set_up(replace(recipe, label_smoothing=smoothing))
        leaf = step.leaf(0)
        losses.append(strategy.contribution(leaf).counts[0].item())
        images, labels = replica.device.put(strategy.read(leaf), channels_last=True)
        strategy.close()
        evaluated.append(evaluate_leaf(replica, source, recipe.evaluation, 0))
    replica.rewind()
    logarithms = replica.model(replica.preprocess.normalize(images)).log_softmax(1)
    hard = -logarithms[torch.arange(4), labels].mean().item()
    soft = 0.8 * hard - 0.2 * logarithms.mean().item()
    assert losses == pytest.approx([hard, soft], rel=1e-5)
    assert evaluated[0] == evaluated[1]


def test_groups_have_settings_of_their_own_and_the_first_that_matches_counts() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    config = Optimizer(
        momentum=0.9,
        groups=(Group(match="1.weight", lr=5.0, weight_decay=0.0), Group(match="1.*", lr=2.0, momentum=0.5)),
    )
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = {
        names[id(parameter)]: (group.get("lr_factor", 1.0), group["weight_decay"], group.get("momentum", 0.9))
        for group in optim.groups(config, model)
        for parameter in group["params"]
    }
    assert found == {
        "0.weight": (1.0, 1e-4, 0.9),
        "0.bias": (1.0, 1e-4, 0.9),
        "1.weight": (5.0, 0.0, 0.9),
        "1.bias": (2.0, 1e-4, 0.5),
    }


def test_a_group_that_matches_nothing_is_refused() -> None:
    with pytest.raises(UserError, match=r"unknown group of parameters 'hed.\*'"):
        optim.groups(Optimizer(groups=(Group(match="hed.*"),)), nn.Linear(2, 2))


def test_an_orthogonal_update_of_one_dimension_is_refused() -> None:
    with pytest.raises(UserError, match="bias has one dimension"):
        optim.groups(Optimizer(name="muon", groups=(Group(match="*", orthogonal=True),)), nn.Linear(2, 2))


def test_muon_makes_kernels_orthogonal_and_leaves_out_what_a_group_says() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4, 2))
    built = optim.build(Optimizer(name="muon", groups=(Group(match="2.*", orthogonal=False),)), model)
    orthogonal = {id(p) for group in built.param_groups if group["orthogonal"] for p in group["params"]}
    assert orthogonal == {id(model[0].weight)}
