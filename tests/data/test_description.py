"""`dataset.json`: what a model must know of its data, there and back."""

from __future__ import annotations

import json

import pytest

from lockstep.config import Data
from lockstep.data import description, open_dataset
from lockstep.data.source import in_order
from lockstep.errors import UserError


def test_a_description_survives_json() -> None:
    dataset = open_dataset(Data(source="synthetic"), 0)
    plain = json.loads(json.dumps(description.to_plain(dataset, Data())))
    assert (plain["version"], plain["train_size"], plain["test_size"]) == (1, 50_000, 10_000)
    found = description.from_plain({**plain, "class_names": list("abcdefghij")})
    assert found is not None
    assert (found.num_classes, found.image_shape, found.class_names) == (10, (3, 32, 32), tuple("abcdefghij"))
    alone = description.without_samples(found)
    assert (len(alone.train), len(alone.test)) == (50_000, 10_000)
    with pytest.raises(UserError):
        alone.train.fetch(in_order(0, 1))


@pytest.mark.parametrize("damage", [None, [], {}, {"image_shape": "3"}, {"version": 2}, {"num_classes": "ten"}])
def test_what_is_damaged_or_newer_is_not_used(damage: object) -> None:
    plain = description.to_plain(open_dataset(Data(source="synthetic"), 0), Data())
    assert description.from_plain(damage if not damage or not isinstance(damage, dict) else {**plain, **damage}) is None
