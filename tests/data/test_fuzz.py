"""Random damage to small files: the readers give data or a sentence, and never anything else."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from lockstep.config import Data
from lockstep.data import open_dataset
from lockstep.data.source import in_order
from lockstep.errors import UserError
from tests.data import files

SECONDS = 2.0


def originals(directory: Path) -> dict[str, bytes]:
    """A small file of every version."""
    train10, train100 = files.cifar10(3), files.cifar100(3)
    folder, contents = files.version("cifar10", "binary", files.cifar10(5), train10)
    packed = files.write_tar(directory / "packed", folder, contents).read_bytes()
    plain = files.write_tar(directory / "plain", folder, contents, "w").read_bytes()
    python = files.write_tar(directory / "python", *files.version("cifar100", "python", train100, train100), "w")
    return {
        "a.bin": train10.tobytes(),
        "b.bin": train100.tobytes(),
        "pickle10": files.pickle10(train10),
        "pickle100": files.pickle100(train100),
        "c.tar.gz": packed,
        "d.tar": plain,
        "e.tar": python.read_bytes(),
    }


def damage(data: bytes, chance: random.Random) -> bytes:
    """Cut off, or bytes changed, put in or left out, mostly near the start, where formats have their structure."""
    changed = bytearray(data)
    how = chance.randrange(4)
    if how == 0:
        return bytes(changed[: chance.randrange(len(changed))])
    for _ in range(chance.choice([1, 1, 2, 8])):
        if not changed:
            break
        place = chance.randrange(chance.choice([64, 600, len(changed)])) % len(changed)
        if how == 1:
            changed[place] = chance.randrange(256)
        elif how == 2:
            changed[place:place] = chance.randbytes(chance.choice([1, 2, 8]))
        else:
            del changed[place : place + chance.choice([1, 2, 512])]
    return bytes(changed)


@pytest.mark.parametrize("name", ["a.bin", "b.bin", "pickle10", "pickle100", "c.tar.gz", "d.tar", "e.tar"])
def test_damage_is_a_sentence_or_valid_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """F6: the same damage in every session, as much of it as fits into the time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    original, chance = originals(tmp_path)[name], random.Random(name)
    deadline, refused, tried = time.monotonic() + SECONDS, 0, 0
    while time.monotonic() < deadline:
        tried += 1
        path = tmp_path / f"{tried}-{name}"
        path.write_bytes(damage(original, chance))
        source = chance.choice(["cifar10", "cifar100"])
        try:
            dataset = open_dataset(Data(source=source, path=str(path), eval_path=str(path), labels="fine"), seed=0)
            labels = dataset.train.fetch(in_order(0, len(dataset.train))).labels
            assert 0 <= labels.min() <= labels.max() < dataset.num_classes
        except UserError:
            refused += 1
        path.unlink()
    assert refused > 5
    assert tried > 20
