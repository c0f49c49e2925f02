"""`--compile`: bits of its own that do not depend on the number of workers, and everything compiled before the loop.

Starting the compiler takes long, so these tests share a cache, a model and the shapes of leaves.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lockstep import compiler, worker
from lockstep.config import Evaluation, Model, Recipe
from lockstep.data import open_dataset
from lockstep.errors import UserError
from lockstep.evaluate import evaluate_leaf
from tests.alone import set_up, tiny_recipe
from tests.conftest import Command, digest_in
from tests.test_resume import rows_of

pytestmark = [
    pytest.mark.timeout(400),  # mostly the C++ compiler: half a minute on free cores, minutes on busy ones
    pytest.mark.skipif(shutil.which(compiler.name()) is None, reason=f"needs the C++ compiler {compiler.name()}"),
]

MODEL = """
from torch import nn

def tiny(num_classes, image_shape):
    layers = nn.Conv2d(3, 4, 3, stride=4), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(256, num_classes))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "tiny.py"
    path.write_text(MODEL)
    return f"{path}:tiny"


@pytest.fixture(scope="module", autouse=True)
def _shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


def recipe_of(model: str, compiles: bool) -> Recipe:
    evaluation = Evaluation(leaf_batch=300)
    return tiny_recipe(model=Model(name=model), compile=compiles, evaluation=evaluation)


def test_digest_and_evaluation_do_not_depend_on_the_number_of_workers(lockstep: Command, model: str) -> None:
    """F59: the second run is compiled from the cache of the first. The last leaf of the evaluation is smaller. With the
    usual patience, which is shorter than compiling takes, nobody is expelled."""
    short = ["demo", "--leaves", "4", "--batch-size", "16", "--steps", "3", "--set", f"model.name={model}"]
    short += ["--set", "evaluation.leaf_batch=300", "--no-tensorboard"]
    found = {}
    for name, workers, options in (("one", 1, ["--compile"]), ("two", 2, ["--compile"]), ("control", 1, [])):
        ended = lockstep("train", *short, *options, "--workers", str(workers), "--run", name, timeout=300)
        found[name] = digest_in(ended), rows_of(name, "eval")[0]["loss"], rows_of(name, "eval")[0]["examples"]
        assert not rows_of(name, "death")
    assert found["one"] == found["two"]
    assert found["one"][2] == 2000
    assert found["one"][0] != found["control"][0]
    assert abs(found["one"][1] - found["control"][1]) < 0.01


def test_compiled_gradients_land_in_the_vector_and_nothing_is_compiled_in_the_loop(model: str) -> None:
    """The vector's views are what a compiled backward adds to, within rounding what is added without the compiler,
    dropout included. Another leaf, and an evaluation with its smaller last leaf, need no second compilation."""
    eager, strategy, step = set_up(recipe_of(model, compiles=False))
    wanted = eager.gradient(strategy.read(step.leaf(0)), 1, 0).flat.clone()
    strategy.close()
    recipe = recipe_of(model, compiles=True)
    dataset, (replica, strategy, step) = open_dataset(recipe.data, 0), set_up(recipe)
    parts = SimpleNamespace(recipe=recipe, replica=replica, strategy=strategy, step=step, dataset=dataset)
    worker.compile_now(parts, trains=True)  # type: ignore[arg-type]
    with torch._dynamo.config.patch(error_on_recompile=True):
        vector = replica.gradient(strategy.read(step.leaf(0)), 1, 0)
    assert torch.allclose(vector.flat, wanted, atol=1e-5)
    assert not torch.equal(vector.flat, wanted)
    kept = vector.flat.clone()
    with torch._dynamo.config.patch(error_on_recompile=True):
        for index in (1, 0):
            again = replica.gradient(strategy.read(step.leaf(index)), 1, 0).flat.clone()
        replica.apply(vector, 0)
        results = [evaluate_leaf(replica, dataset.test, recipe.evaluation, leaf) for leaf in (1, 6)]
    assert torch.equal(again, kept)
    assert [result.count for result in results] == [300, 200]
    strategy.close()


class Counting(torch.nn.Module):
    """A model that is another one in every call."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


def test_in_bf16_a_maximum_has_the_gradient_that_it_has_without_the_compiler() -> None:
    """The compiler computes GELU again on the way back; in another precision it would find no maximum, and 0 / 0."""

    class Peak(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(3, 8, 3)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return F.gelu(self.convolution(images)).amax((2, 3))

    torch.manual_seed(0)
    plain, images = Peak(), torch.randn(4, 3, 8, 8)
    found = []
    for model in (plain, compiler.compiled(plain, "cpu", 1)):
        plain.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            model(images).float().sum().backward()
        assert plain.convolution.weight.grad is not None
        found.append(plain.convolution.weight.grad.clone())
    assert torch.isfinite(found[1]).all()
    torch.testing.assert_close(found[1], found[0], rtol=0.05, atol=0.05)


def test_a_model_that_would_be_compiled_again_and_again_stops_the_run() -> None:
    """Instead of going on without the compiler, with other bits, from some leaf on."""
    model, x = compiler.compiled(Counting(), "cpu", 1), torch.ones(3)
    with torch._dynamo.config.patch(recompile_limit=1):
        model(x)
        with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
            model(x)


def test_without_a_compiler_one_sentence_says_what_to_install(
    lockstep: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    refused = lockstep("train", "demo", "--compile")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "install gcc" in refused.stderr
    assert not Path("runs").exists()
    assert compiler.version() is None
    with pytest.raises(UserError, match="install gcc"):  # also on the host of a worker
        compiler.compiled(torch.nn.Linear(1, 1), "cpu", 1)
