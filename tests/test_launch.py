"""A user's own loop: one digest for `python script.py` and for `lockstep launch` on any number of workers, whatever
happens to them, and it is that of the same loop written by hand."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F

from lockstep import api, checkpoint, injection, metrics, rundirectory, trained
from lockstep.config import Job, Recipe, Script
from lockstep.data.order import samples_of_leaf
from lockstep.data.source import in_order
from lockstep.errors import UserError
from lockstep.generators import seed as seed_generators
from lockstep.philox import leaf_seed
from lockstep.progress import Silent
from lockstep.rundirectory import RunDirectory
from lockstep.script import loader
from lockstep.script.training import digest_of
from tests.conftest import REPOSITORY, digest_in, run

PARTS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Noisy(Dataset):
    def __init__(self, size):
        generator = torch.Generator().manual_seed(size)
        self.x = torch.randn(size, 3, 8, 8, generator=generator)
        self.y = torch.randint(0, 4, (size,), generator=generator)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index] + 0.1 * torch.randn(3, 8, 8), self.y[index]

def build():
    torch.manual_seed(1)
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(144, 4)]
    model = nn.Sequential(*layers)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)

def loaders(processes=0):
    loader = DataLoader(Noisy(103), batch_size=16, shuffle=True, num_workers=processes)
    return loader, DataLoader(Noisy(37), batch_size=10)
"""

# No guard of `__main__`, a module beside it, arguments of its own, a gradient cleared and clipped as people do it.
SCRIPT = """
import argparse, json, os, signal, time
import lockstep, torch
import torch.nn.functional as F
from parts import build, loaders

parser = argparse.ArgumentParser()
parser.add_argument("--processes", type=int, default=0)
parser.add_argument("--interrupt-at", type=int)
parser.add_argument("--await-joiner")
options = parser.parse_args()

def score(images, labels):
    logits = model(images)
    loss = F.cross_entropy(logits, labels, reduction="sum")
    return {"loss": loss, "top1": (logits.argmax(1) == labels).sum(), "margin": logits.max(1).values.sum()}

def await_joiner(path):
    while not any('"joined": [2]' in line for line in open(path)):
        time.sleep(0.02)

model, optimizer = build()
loader, test_loader = loaders(options.processes)
progress = {"best": 0}
job = lockstep.job(model=model, optimizer=optimizer, seed=5, progress=progress)
train = job.batches(loader, epochs=3)
scheduler = job.keep(scheduler=torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.02, total_steps=len(train)))
plateau = job.keep(plateau=torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0))

for step in train:
    while not step.done:
        for images, labels in step.leaves():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            step.backward(loss)
        step.exchange()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    if step.ends_epoch:
        figures = job.evaluate(test_loader, score)
        plateau.step(figures["loss"])
        progress["best"] = max(progress["best"], figures["top1"])
        job.say(f"epoch {step.epoch}: {json.dumps(figures)} {progress['best']}")
    if step.index == 10 and options.await_joiner:
        await_joiner(options.await_joiner)
    if step.index == options.interrupt_at and job.is_first:
        os.kill(os.getppid(), signal.SIGINT)
job.say(f"own {job.digest()} {progress['best']} {optimizer.param_groups[0]['lr']!r}")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("launch")
    (directory / "below").mkdir()
    (directory / "below/parts.py").write_text(PARTS)
    (directory / "below/script.py").write_text(SCRIPT)
    return directory


def python(script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run([sys.executable, script], cwd=cwd, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def alone(place: Path) -> list[str]:
    """What the script says when it runs by itself."""
    result = python("below/script.py", place)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def said(result: subprocess.CompletedProcess[str]) -> list[str]:
    """What the script says under `lockstep launch`."""
    return [line for line in result.stderr.splitlines() if line.startswith(("epoch ", "own "))]


def rows(place: Path, name: str, kind: str) -> list[dict[str, object]]:
    return [row for row in metrics.read(place / "runs" / name / "metrics.jsonl") if row["kind"] == kind]


def test_alone_it_is_the_loop_written_by_hand(place: Path, alone: list[str]) -> None:
    """F59: ordinary torch, leaf after leaf, added in the order of the tree."""
    parts = _import(place / "below/parts.py")
    threads = torch.get_num_threads()
    with trained.generators_kept():
        torch.set_num_threads(1)
        digest, hits, rate = by_hand(parts)
        torch.set_num_threads(threads)
    assert alone[-1].split()[1] == digest
    assert alone[-1].split()[3] == repr(rate)
    figures = json.loads(alone[-2].split(": ", 1)[1].rpartition(" ")[0])
    assert figures["examples"] == 37
    assert figures["top1"] == hits / 37


def _import(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("launched_parts", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def by_hand(parts: ModuleType) -> tuple[str, int, float]:
    model, optimizer = parts.build()
    train, test = (loader.take_apart(one, trains=False) for one in parts.loaders())
    num_steps = -(-3 * len(train) // 16)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.02, total_steps=num_steps)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for step in range(num_steps):
        start = {name: buffer.clone() for name, buffer in model.named_buffers()}
        found = []
        for leaf in range(4):
            images, labels = loader.read(train, 5, samples_of_leaf(5, len(train), 16, 4, step, leaf))
            seed_generators(leaf_seed(5, step, leaf))
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            statistics = [b.clone() for b in model.buffers() if b.is_floating_point()]
            found.append([*(p.grad.clone() for p in model.parameters()), *statistics])
            last = {name: buffer.clone() for name, buffer in model.named_buffers()}
            model.load_state_dict(start, strict=False)
        means = [((a + b) + (c + d)) / 4 for a, b, c, d in zip(*found, strict=True)]
        for parameter in model.parameters():
            parameter.grad = means.pop(0)
        for name, buffer in model.named_buffers():
            buffer.copy_(means.pop(0) if buffer.is_floating_point() else last[name])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if (step + 1) * 16 // 103 > step * 16 // 103:
            hits, loss = evaluate(model, test)
            plateau.step(loss)
    return digest_of(model), hits, optimizer.param_groups[0]["lr"]


def evaluate(model: torch.nn.Module, test: loader.Parts) -> tuple[int, float]:
    model.eval()
    hits, total = 0, 0.0
    with torch.no_grad():
        for first in range(0, 37, 10):
            images, labels = loader.read(test, 5, in_order(first, min(first + 10, 37)))
            logits = model(images)
            hits += int((logits.argmax(1) == labels).sum())
            total += float(F.cross_entropy(logits, labels, reduction="sum"))
    model.train()
    return hits, total / 37


def test_killed_workers_and_data_processes_change_nothing(place: Path, alone: list[str]) -> None:
    """F59 F79: one dies in a leaf, another in the middle of an evaluation."""
    with injection.rules("kill worker=1 step=4 phase=backward; kill worker=0 step=13 phase=evaluate"):
        arguments = ["--workers", "3", "--run", "killed", "--no-tensorboard", "below/script.py", "--processes", "1"]
        result = run("launch", *arguments, cwd=place)
    assert digest_in(result) == alone[-1].split()[1]
    assert said(result) == alone
    assert " leaves of 4 samples, " in result.stderr  # whatever they are
    assert len(rows(place, "killed", "death")) == 2
    assert [row["top1"] for row in rows(place, "killed", "eval")] == [
        json.loads(_figures(one))["top1"] for one in alone[:-1]
    ]
    assert {row["margin"] for row in rows(place, "killed", "eval")} == {
        json.loads(_figures(one))["margin"] for one in alone[:-1]
    }


def _figures(line: str) -> str:
    return line.split(": ", 1)[1].rpartition(" ")[0]


def test_a_worker_that_joins_gets_scheduler_and_counters_too(place: Path, alone: list[str]) -> None:
    """Nothing but what the script has named is copied, and it is enough."""
    with injection.rules("kill worker=1 step=3 phase=exchange"):
        file = str(place / "runs/joined/metrics.jsonl")
        arguments = [
            "--workers",
            "2",
            "--run",
            "joined",
            "--patience",
            "90",
            "--no-tensorboard",
            "below/script.py",
            "--await-joiner",
            file,
        ]
        result = run("launch", *arguments, cwd=place)
    assert digest_in(result) == alone[-1].split()[1]
    assert said(result) == alone
    assert rows(place, "joined", "generation")[-1]["joined"] == [2]


def test_interrupted_and_resumed_with_other_workers(place: Path, alone: list[str]) -> None:
    """F76 F78: Ctrl-C leaves a checkpoint, which has the scheduler; the stored arguments are the script's again; a
    changed script is noted."""
    script = place / "below/copy.py"
    script.write_text(SCRIPT)
    launch = ["launch", "--run", "cut", "--no-tensorboard"]
    stopped = run(*launch, "--workers", "2", "below/copy.py", "--interrupt-at", "8", cwd=place)
    assert stopped.returncode == 130, stopped.stderr
    assert "lockstep resume cut" in stopped.stdout
    newest, _ = checkpoint.newest_good(place / "runs/cut/checkpoints")
    assert newest is not None
    assert 9 <= newest.step < 20
    assert (newest.path / "script.safetensors").exists()
    script.write_text(SCRIPT + "# another\n")
    resumed = run("resume", "cut", "--workers", "1", "--no-tensorboard", cwd=place)
    assert digest_in(resumed) == alone[-1].split()[1]
    assert said(resumed) == alone[-len(said(resumed)) :]
    assert "copy.py has changed since the run began" in resumed.stderr
    finished = run(*launch, "--resume", "--workers", "2", "below/copy.py", "--interrupt-at", "8", cwd=place)
    assert digest_in(finished) == alone[-1].split()[1]
    assert said(finished) == alone[-1:]


def test_all_die_and_servers_add_up(place: Path, alone: list[str]) -> None:
    with injection.rules("kill worker=0 step=9 phase=forward; kill worker=1 step=9 phase=forward"):
        arguments = ["--strategy", "server", "--workers", "2", "--set", "checkpoints.every_steps=4", "--no-tensorboard"]
        result = run("launch", *arguments, "--run", "all", "below/script.py", cwd=place)
    assert digest_in(result) == alone[-1].split()[1]
    assert said(result)[-1] == alone[-1]
    assert rows(place, "all", "generation")[-1]["step"] in (4, 7, 8)


BROKEN = """
import lockstep, torch, torch.nn.functional as F
from parts import build, loaders
model, optimizer = build()
job = lockstep.job(model=model, optimizer=optimizer)
for step in job.batches(loaders()[0], steps=3):
    while not step.done:
        for images, labels in step.leaves():
            step.backward(F.cross_entropy(model(images), labels))
        step.exchange()
    optimizer.step()
    if step.index == 1:
        raise RuntimeError("of the user")
"""


def test_an_error_of_the_script_reaches_the_user(place: Path) -> None:
    (place / "below/broken.py").write_text(BROKEN)
    result = run("launch", "--workers", "2", "--run", "broken", "below/broken.py", cwd=place)
    assert result.returncode == 1
    assert "worker" in result.stderr
    assert "RuntimeError: of the user" in result.stderr
    assert "runpy" not in result.stderr
    assert "its log is runs/broken/logs/worker-" in result.stderr


def test_weights_that_differ_at_the_start_are_refused(place: Path) -> None:
    """F58"""
    text = BROKEN.replace(
        "model, optimizer = build()",
        "build()\ntorch.seed()\nmodel = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters())",
    )
    (place / "below/unseeded.py").write_text(text)
    result = run("launch", "--workers", "1", "--run", "unseeded", "below/unseeded.py", cwd=place)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith("lockstep: ")
    assert "torch.manual_seed" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere.py"], "there is no script nowhere.py"),
        (["below"], "is a directory"),
        (["--strategy", "averaging", "below/script.py"], "--strategy averaging"),
        (["--engine", "ray", "below/script.py"], "--engine ray"),
        (["--verify-every", "2", "below/script.py"], "--verify-every"),
        (["--set", "schedule.lr=1", "below/script.py"], "the script decides"),
    ],
)
def test_mistakes_in_the_command(place: Path, arguments: list[str], sentence: str) -> None:
    result = run("launch", *arguments, cwd=place)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_script_is_asked_first(place: Path) -> None:
    """Its own arguments are its own, and what it cannot train is said before a worker starts."""
    shown = run("launch", "below/script.py", "--help", cwd=place)
    assert shown.returncode == 0
    assert "--interrupt-at" in shown.stdout
    wrong = run("launch", "below/script.py", "--workers", "2", cwd=place)
    assert wrong.returncode == 2
    assert "unrecognized arguments: --workers 2" in wrong.stderr
    (place / "below/idle.py").write_text("print('nothing')\n")
    assert "ended without training" in run("launch", "below/idle.py", cwd=place).stderr
    assert not (place / "runs/script-1").exists()


def test_what_only_the_script_can_do_is_refused(workspace: Path) -> None:
    """Runs of scripts are runs, but their model and data are not known to others."""
    directory = RunDirectory(workspace / "runs/mine")
    rundirectory.create(directory, is_new=True)
    directory.write_config(Recipe(name="mine", steps=1, script=Script(path="mine.py")), Job(workers=1))
    uses: list[Callable[[str], object]] = [api.evaluate_run, api.follow_run, lambda run: api.predict(run, [])]
    for use in uses:
        with pytest.raises(UserError, match=r"trained by mine\.py, which alone knows its model"):
            use("mine")
    with pytest.raises(UserError, match=r"trained by mine\.py, which alone knows its model"):
        trained.load("mine", None, Silent())
    with pytest.raises(UserError, match=r"start it with `lockstep launch mine\.py`"):
        api.train("runs/mine/")
