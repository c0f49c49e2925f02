"""The embedded data: the same bytes everywhere, and too hard for a linear model."""

from __future__ import annotations

import hashlib
import threading

import torch
import torch.nn.functional as F

from lockstep.config import Data
from lockstep.data import open_dataset, shapes
from lockstep.data.source import in_order
from lockstep.preprocess import standardize


def test_the_bytes_never_change() -> None:
    """Every digest in the documentation rests on these."""
    digest = hashlib.sha256()
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        digest.update((shapes.materialize() / name).read_bytes())
    assert digest.hexdigest() == "c4ae2fc630d947610513410fdac0dbf2abb424330e960668df7ce3375d2e04e6"


def test_a_linear_model_stays_under_70_percent() -> None:
    dataset = open_dataset(Data(source="shapes", crop_padding=0, flip=False), seed=0)
    train, test = dataset.train.fetch(in_order(0, 10_000)), dataset.test.fetch(in_order(0, 2000))
    x, y = standardize(torch.from_numpy(train.images).float()).flatten(1), torch.from_numpy(train.labels)
    weights = torch.zeros(3072, 10, requires_grad=True)
    optimizer = torch.optim.Adam([weights], lr=1e-3)
    for step in range(300):
        rows = torch.arange(step * 500, step * 500 + 500) % 10_000
        loss = F.cross_entropy(x[rows] @ weights, y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    features = standardize(torch.from_numpy(test.images).float()).flatten(1)
    top1 = ((features @ weights).argmax(1) == torch.from_numpy(test.labels)).float().mean().item()
    assert loss.item() < 2.25  # it did learn what it can
    assert 0.10 < top1 < 0.70


def test_processes_that_draw_at_once_do_not_disturb_each_other(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shapes, "NUM_TRAIN_FILES", 1)
    monkeypatch.setattr(shapes, "RECORDS_PER_FILE", 20)
    monkeypatch.setattr(shapes, "NUM_TEST", 20)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(shapes.materialize())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert sorted(path.name for path in (tmp_path / "lockstep").iterdir()) == ["shapes-v1", "shapes-v1.lock"]
