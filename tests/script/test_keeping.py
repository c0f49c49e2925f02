"""What a script keeps goes through bytes and back, and training goes on as if nothing had happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch import nn
from torch.optim import lr_scheduler

from lockstep import optim
from lockstep.errors import UserError
from lockstep.script import keeping

SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=9),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=3),
    "cycle": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.5, total_steps=20),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.2, step_size_up=3),
    "milestones": lambda o: lr_scheduler.MultiStepLR(o, [2, 6, 6]),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.9**epoch),
    "linear": lr_scheduler.LinearLR,
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1),
    "in turn": lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.LinearLR(o), lr_scheduler.StepLR(o, 2)], [3]),
}


class Training:
    def __init__(self, scheduler: str) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(3, 1)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.scheduler = SCHEDULERS[scheduler](self.optimizer)

    def step(self, number: int) -> tuple[float, Any]:
        self.model.zero_grad()
        self.model(torch.full((1, 3), 0.1 * number)).sum().backward()
        self.optimizer.step()
        self.scheduler.step(*([1.0] if isinstance(self.scheduler, lr_scheduler.ReduceLROnPlateau) else []))
        group = self.optimizer.param_groups[0]
        return group["lr"], (group["betas"], self.model.weight.tolist())


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_every_scheduler_goes_on_where_it_was(scheduler: str) -> None:
    """F43"""
    one, other = Training(scheduler), Training(scheduler)
    for number in range(5):
        one.step(number)
    named = load(save(keeping.pack({"scheduler": one.scheduler}, one.optimizer)))
    other.model.load_state_dict(one.model.state_dict())
    optim.load_state(other.optimizer, other.model, optim.named_state(one.optimizer, one.model))
    keeping.unpack(named, {"scheduler": other.scheduler}, other.optimizer)
    assert [one.step(number) for number in range(5, 12)] == [other.step(number) for number in range(5, 12)]


def test_every_kind_of_value_comes_back() -> None:
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    kept = {
        "numbers": [0.1, float("inf"), 10**30, True, None, "text", (1, (2.5, "x"))],
        3: {4.5: "a key that is a number"},
        "tensor": torch.arange(6).reshape(2, 3)[:, 1],
        "array": np.linspace(0, 1, 3),
        "counter": Counter({5: 2}),
        "scalar": np.float64(0.3),
    }
    before = dict(kept)
    named = load(save({name: one.contiguous() for name, one in keeping.pack({"all": kept}, optimizer).items()}))
    kept.clear()
    kept["left over"] = 1
    keeping.unpack(named, {"all": kept}, optimizer)
    for name in ("numbers", 3, "counter", "scalar"):
        assert kept[name] == before[name]
    assert isinstance(kept["counter"], Counter)
    assert torch.equal(kept["tensor"], before["tensor"])  # type: ignore[arg-type]
    assert np.array_equal(kept["array"], before["array"])  # type: ignore[arg-type]
    assert "left over" not in kept


def test_what_cannot_be_kept_is_said() -> None:
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    with pytest.raises(UserError, match="all keeps a function"):
        keeping.pack({"all": {"g": lambda: None}}, optimizer)
    named = keeping.pack({}, optimizer)
    with pytest.raises(UserError, match="nothing of scheduler"):
        keeping.unpack(named, {"scheduler": {}}, optimizer)
    with pytest.raises(UserError, match="model is kept already"):
        keeping.check("model", {})
