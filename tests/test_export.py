"""`lockstep export`, and what those who have no Lockstep can do with a run."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model

from lockstep import checkpoint, export, models, rundirectory, trained
from lockstep.cli import main
from lockstep.config import Data, Evaluation, Job, Model, Recipe
from lockstep.data import description, open_dataset
from lockstep.errors import UserError
from lockstep.evaluate import inference, seen
from lockstep.progress import Silent
from lockstep.replica import Replica
from lockstep.rundirectory import RunDirectory
from tests.alone import set_up, tiny_recipe
from tests.conftest import REPOSITORY
from tests.test_docs import blocks

NET = '''
import torch
from torch import nn

class Net(nn.Module):
    """With weights under two names, and a buffer that is not saved."""

    def __init__(self, num_classes):
        super().__init__()
        self.one = nn.Linear(3072, 8)
        self.two = nn.Linear(8, 8)
        self.three = nn.Linear(8, 8)
        self.three.weight = self.two.weight
        self.head = nn.Linear(8, num_classes)
        self.register_buffer("scale", torch.ones(1, dtype=torch.int64), persistent=False)

    def forward(self, images):
        hidden = torch.relu(self.one(images.flatten(1)))
        return self.head(self.three(torch.relu(self.two(hidden))) * self.scale)

def net(num_classes, image_shape=(3, 32, 32)):
    return Net(num_classes)
'''


def write_run(name: str, recipe: Recipe, *steps: int) -> Replica:
    """A run as if it had been trained, with a checkpoint of each of these steps; the replica is that of the last."""
    recipe = replace(recipe, device="cpu")
    directory = RunDirectory(Path("runs") / name)
    rundirectory.create(directory, is_new=True)
    dataset = open_dataset(recipe.data, recipe.seed)
    replica, strategy, _ = set_up(recipe)
    for step in steps:
        torch.manual_seed(step)
        replica.weights.add_(torch.randn_like(replica.weights), alpha=0.01)
        replica.put_statistics(replica.statistics + 0.1)
        if replica.average is not None:
            replica.average.update(range(step, step + 1))
        checkpoint.write(directory.checkpoints, checkpoint.Snapshot(step, strategy.snapshot(), None, -1))
    data = description.with_channels(recipe.data, dataset, None)
    directory.write_json("dataset.json", description.to_plain(dataset, data))
    directory.write_config(recipe, Job(workers=1))
    return replica


def own_recipe(**changes: Any) -> Recipe:
    Path("net.py").write_text(NET)
    return tiny_recipe(model=Model(name=f"{Path('net.py').resolve()}:net"), **changes)


def evaluated(replica: Replica) -> dict[str, torch.Tensor]:
    with replica.evaluating():
        return {name: tensor.detach().clone() for name, tensor in replica.model.state_dict().items()}


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_a_state_dict_for_plain_torch(workspace: Path, average: float, capsys: pytest.CaptureFixture[str]) -> None:
    """As the run evaluates: with the moving average, if it has one. It is loaded without executing anything."""
    replica = write_run("run", tiny_recipe(average=average), 3)
    assert main(["export", "run", "--to", "torch"]) == 0
    assert capsys.readouterr().out == "run.pt\n"
    found, expected = torch.load("run.pt", weights_only=True), evaluated(replica)
    assert list(found) == list(expected)
    assert all(
        torch.equal(found[name], tensor) and tensor.dtype == found[name].dtype for name, tensor in expected.items()
    )
    assert (average == 0) == torch.equal(found["0.weight"], replica.model.state_dict()["0.weight"])
    assert Path("run.pt").stat().st_size < 2 * sum(tensor.nbytes for tensor in expected.values())


@pytest.mark.parametrize(("wanted", "step"), [("3", 3), ("5", 5), ("last", 5), (None, 5)])
def test_any_checkpoint_can_be_exported(workspace: Path, wanted: str | None, step: int) -> None:
    write_run("run", tiny_recipe(), 3, 5)
    path = export.export("last", "safetensors", out="there.st", checkpoint=wanted)
    stored = load_file(f"runs/run/checkpoints/step-{step:09d}/model.safetensors")
    assert all(torch.equal(tensor, stored[name]) for name, tensor in load_file(path).items())


def test_safetensors_know_classes_and_normalisation(workspace: Path) -> None:
    recipe = tiny_recipe(data=Data(source="shapes", standardize="channel", sizes=((0.5, 16), (1, 24))))
    write_run("run", recipe, 3)
    with safe_open(export.export("run", "safetensors"), "pt") as file:
        facts = file.metadata()
    known = {name: json.loads(facts[name]) for name in facts if name not in ("format", "run")}
    measured = open_dataset(recipe.data, 0).channels
    assert known["normalize"] == {
        "kind": "channel",
        "mean": pytest.approx(measured.mean),
        "deviation": pytest.approx(measured.deviation),
    }
    assert known["class_names"][0] == open_dataset(recipe.data, 0).class_names[0]  # type: ignore[index]
    assert (known["num_classes"], known["step"], known["image_shape"]) == (10, 3, [3, 24, 24])
    assert known["model"]["name"] == recipe.model.name
    assert (facts["format"], facts["run"]) == ("pt", "run")


def test_tied_weights_and_buffers_that_are_not_saved(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both files load into the model as it is, and strictly."""
    replica = write_run("run", own_recipe(), 3)
    for form in ("torch", "safetensors"):
        export.export("run", form)
    expected = evaluated(replica)
    one, other = (models.build(replica.recipe.model, 10, (3, 32, 32)) for _ in range(2))
    one.load_state_dict(torch.load("run.pt", weights_only=True))
    assert [*map(len, load_model(other, "run.safetensors"))] == [0, 0]
    for model in (one, other):
        assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())


def without_lockstep(code: str, cwd: Path) -> str:
    """What a program prints that cannot import Lockstep."""
    hidden = f"import sys; sys.modules['lockstep'] = None; sys.path.insert(0, '.')\n{code}"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd)}
    result = subprocess.run([sys.executable, "-c", hidden], cwd=cwd, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def compare_with_shown(replica: Replica, number: int, before: str = "") -> None:
    """What the documentation shows, of three lines besides imports, gives the logits of the run's model."""
    shown = [body for body in blocks(REPOSITORY / "docs/export.md", "python") if "import" in body]
    assert len(shown) == 5
    assert len([line for line in shown[number].splitlines() if line and "import" not in line]) <= 3
    after = "import torch\nmodel.eval()\nprint(model(torch.ones(1, 3, 32, 32)).tolist())"
    printed = without_lockstep(f"{before}\n{shown[number]}\n{after}", Path())
    replica.model.eval()
    with torch.no_grad():
        expected = replica.model(torch.ones(1, 3, 32, 32)).tolist()
    np.testing.assert_allclose(json.loads(printed.splitlines()[-1]), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("number", "form"), [(3, "torch"), (4, "safetensors")])
def test_exported_weights_are_used_without_lockstep(workspace: Path, number: int, form: str) -> None:
    """As the documentation shows it; a checkpoint of a timm model is in tests/models/test_timm_models.py."""
    replica = write_run("a", own_recipe(), 4)
    export.export("a", form)
    compare_with_shown(replica, number)


PLAIN = """
from torch import nn

def net(num_classes, image_shape=(3, 32, 32)):
    return nn.Sequential(nn.Conv2d(3, 4, 5, 4), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(196, num_classes))
"""


def test_checkpoints_are_used_without_lockstep(workspace: Path) -> None:
    """By plain PyTorch, and as arrays; both as the documentation shows it."""
    Path("net.py").write_text(PLAIN)
    replica = write_run("a", tiny_recipe(model=Model(name=f"{Path('net.py').resolve()}:net")), 4)
    compare_with_shown(replica, 1)
    shown = [body for body in blocks(REPOSITORY / "docs/export.md", "python") if "import" in body]
    printed = without_lockstep(f"{shown[2]}\nprint('torch' in sys.modules, weights['0.bias'].tolist())", Path())
    assert printed == f"False {dict(replica.model.named_parameters())['0.bias'].tolist()}\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "--to", "tourch"], "unknown value of --to 'tourch': did you mean 'torch'?"),
        (["nun", "--to", "torch"], "unknown run 'nun': did you mean 'run'?"),
        (
            ["run", "--to", "torch", "--out", "there"],
            "there exists already: delete it, or choose another name with --out",
        ),
        (["run", "--to", "torch", "--out", "no/such.pt"], "no/such.pt cannot be written (No such file or directory)"),
        (["run", "--to", "torch", "--checkpoint", "4"], "run has no checkpoint of step 4: there are 3"),
        (["run", "--to", "torch", "--checkpoint", "best"], "run has not been evaluated yet"),
    ],
)
def test_what_cannot_be_exported_is_one_sentence(
    workspace: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    write_run("run", tiny_recipe(), 3)
    Path("there").touch()
    assert main(["export", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert sentence in line
    assert sorted(path.name for path in Path().iterdir()) == ["runs", "there"]


def test_the_callers_random_numbers_are_its_own(workspace: Path) -> None:
    write_run("run", tiny_recipe(), 3)
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    trained.load("run", None, Silent())
    assert torch.equal(torch.rand(3), expected)


def test_without_onnx_one_sentence_says_what_to_install(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run("run", tiny_recipe(), 3)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r"onnx is not installed: pip install 'lockstep-train\[onnx\]'$"):
        export.export("run", "onnx")
    assert not list(Path().glob("*.onnx"))


@pytest.mark.parametrize(
    "data",
    [
        Data(source="shapes"),
        Data(source="shapes", standardize="channel", sizes=((0.5, 16), (1, 24))),
    ],
    ids=lambda data: data.standardize,
)
def test_an_onnx_file_has_the_logits_of_the_model(workspace: Path, data: Data) -> None:
    """From pixels on, for batches of any size, with the weights that are evaluated."""
    onnx = pytest.importorskip("onnx")
    reference = pytest.importorskip("onnx.reference")
    recipe = tiny_recipe(average=0.9, data=data, evaluation=Evaluation(leaf_batch=5))
    replica = write_run("run", recipe, 3)
    path = export.export("run", "onnx")
    onnx.checker.check_model(path, full_check=True)
    model = onnx.load(path)
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(facts["normalize"])["kind"] == data.standardize
    images = np.random.default_rng(0).integers(0, 256, (5, 3, 32, 32), dtype=np.uint8)
    with inference(replica):
        expected = seen(replica, torch.from_numpy(images), odd=True).numpy()
    evaluator = reference.ReferenceEvaluator(model)
    for count in (1, 5):
        (logits,) = evaluator.run(None, {"pixels": images[:count].astype(np.float32)})
        np.testing.assert_allclose(logits, expected[:count], rtol=1e-3, atol=1e-4)
