"""bf16, TF32 and the memory format: each has bits of its own, which do not depend on the number of workers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from lockstep import device, metrics
from lockstep.data import open_dataset
from lockstep.device import Device
from lockstep.evaluate import evaluate_leaf
from tests.alone import set_up, tiny_recipe, train
from tests.conftest import Command, digest_in, run
from tests.test_resume import rows_of

# 4 leaves of 4 images; neither the schedule nor the data of a step depends on the length.
TINY = [
    *["demo", "--leaves", "4", "--batch-size", "16", "--set", "evaluation.leaf_batch=50", "--no-tensorboard"],
    *["--set", "evaluation.max_leaves=3", "--set", "schedule.name=constant", "--set", "schedule.warmup=0"],
]


def losses(run: str) -> list[float]:
    return [row["loss"] for row in rows_of(run, "eval")]


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, float]:
    """Digest and loss of the control: float32 and channels-last."""
    directory = tmp_path_factory.mktemp("usual")
    digest = digest_in(run("train", *TINY, "--steps", "3", "--workers", "1", "--run", "run", cwd=directory))
    rows = metrics.read(directory / "runs/run/metrics.jsonl")
    return digest, next(row["loss"] for row in rows if row["kind"] == "eval")


@pytest.mark.parametrize("option", ["--precision=bf16", "--no-channels-last"])
def test_digest_and_evaluation_do_not_depend_on_the_number_of_workers(
    lockstep: Command, usual: tuple[str, float], option: str
) -> None:
    """F34 F59: N = 2 ends as N = 4 that is resumed by 1, which keeps precision and format; and not as the control."""
    two = digest_in(lockstep("train", *TINY, option, "--steps", "3", "--workers", "2", "--run", "two"))
    digest_in(lockstep("train", *TINY, option, "--steps", "2", "--workers", "4", "--run", "four"))
    four = digest_in(lockstep("resume", "four", "--steps", "3", "--workers", "1"))
    assert two == four != usual[0]
    assert losses("two") == losses("four")[-1:] != [usual[1]]
    assert abs(losses("two")[0] - usual[1]) < 0.05


def kinds_of_convolutions(precision: str, evaluates: bool) -> set[torch.dtype]:
    recipe = tiny_recipe(precision=precision)
    replica, strategy, step = set_up(recipe)
    seen = set()
    for module in replica.model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(lambda module, inputs, output: seen.add(output.dtype))
    if evaluates:
        evaluate_leaf(replica, open_dataset(recipe.data, 0).test, recipe.evaluation, 0)
    else:
        replica.gradient(strategy.read(step.leaf(0)), 1, 0)
    strategy.close()
    return seen


@pytest.mark.parametrize("evaluates", [False, True], ids=["training", "evaluation"])
def test_products_are_in_the_precision_that_was_asked_for(evaluates: bool) -> None:
    assert kinds_of_convolutions("bf16", evaluates) == {torch.bfloat16}
    assert kinds_of_convolutions("fp32", evaluates) == {torch.float32}


def test_loss_weights_gradients_and_optimizer_stay_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    loss = torch.nn.functional.cross_entropy

    def spy(logits: torch.Tensor, *arguments: object, **options: object) -> torch.Tensor:
        found = loss(logits, *arguments, **options)  # type: ignore[arg-type]
        seen.append((logits.dtype, found.dtype))
        return found

    monkeypatch.setattr(torch.nn.functional, "cross_entropy", spy)
    replica = train(tiny_recipe(precision="bf16"))
    state = replica.copy_state()
    kept = {tensor.dtype for tensor in (*state.model.values(), *state.optimizer.values()) if tensor.is_floating_point()}
    assert kept == {torch.float32}
    assert {parameter.grad.dtype for parameter in replica.model.parameters() if parameter.grad is not None} == kept
    assert set(seen) == {(torch.float32, torch.float32)}


def test_channels_first_is_channels_last_within_rounding() -> None:
    """F34: the same training but for the order of additions."""
    first, last = train(tiny_recipe(channels_last=False)), train(tiny_recipe())
    assert first.digest() != last.digest()
    for (name, one), (_, other) in zip(first.named_state(), last.named_state(), strict=True):
        assert torch.allclose(one, other, atol=1e-4), name


def test_tf32_is_on_for_tf32_only_whatever_was_before() -> None:
    flags = []
    for precision in ("tf32", "bf16", "fp32"):
        Device("cpu", 1, precision)
        flags.append((torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32))
    assert flags == [(True, True), (False, False), (False, False)]


def test_variables_of_the_user_change_no_precision() -> None:
    assert device.environment(1, "fp32")["NVIDIA_TF32_OVERRIDE"] == "0"
    assert device.environment(1, "fp32")["ONEDNN_DEFAULT_FPMATH_MODE"] == "STRICT"
    assert "NVIDIA_TF32_OVERRIDE" not in device.environment(1, "tf32")


@pytest.mark.skipif(device.count_gpus() > 0, reason="for hosts without a GPU")
def test_tf32_without_a_gpu_is_refused_in_one_sentence(lockstep: Command) -> None:
    refused = lockstep("train", "demo", "--precision", "tf32")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "--precision fp32 or bf16" in refused.stderr
    assert not Path("runs").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="for hosts without a GPU")
def test_a_gpu_that_pytorch_cannot_use_is_told_in_one_sentence(
    lockstep: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under a scheduler that gives out GPUs, with a build of PyTorch for CPUs."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    refused = lockstep("train", *TINY, "--workers", "1", "--run", "run")
    assert refused.returncode == 2
    assert "cannot use one here: take --device cpu" in refused.stderr
    assert "Traceback" not in refused.stderr
