"""Where the time of a step goes: what is measured with which data, and what has a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench import accounting, results
from bench.accounting import Account
from bench.contestants import RECIPES
from lockstep.config import Data
from lockstep.request import Request, find_recipe, resolve

STEPS = Account(
    total=10.0, spans={"data": 0.05, "forward": 4.0}, waiting=0.0, mean_waiting=0.0, supervisor=0.0, threads=0.0
)


class FakeAccounts:
    """Steps that wait for data when they are given some, for a share of each round."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, shares: Sequence[float]) -> None:
        self.options: list[tuple[str, ...]] = []
        self._shares = iter([share for share in shares for _ in accounting.DATA])
        monkeypatch.setattr(accounting, "account", self._account)

    def _account(self, directory: Path, workers: int, log_every: int, options: Sequence[str] = ()) -> Account:
        self.options.append(tuple(options))
        if not options:
            return STEPS
        return replace(STEPS, spans={"data": next(self._shares) * STEPS.total})


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [([0.0002] * 6, "met"), ([0.009] * 5 + [0.02], "not resolved"), ([0.03] * 6, "not met")],
)
def test_waiting_for_data_has_a_target_of_one_percent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shares: list[float], verdict: str
) -> None:
    FakeAccounts(monkeypatch, shares)
    result = accounting.accounting(False, tmp_path, lambda line: None)
    plain = results.to_plain(result, {}, "", 1.0)
    found = {figure["what"]: figure for figure in plain["figures"] if "waiting for data" in figure["what"]}
    assert set(found) == {f"2 workers: waiting for data, {what}" for what in accounting.DATA}
    for figure in found.values():
        assert (figure["target"], figure["verdict"]) == ({"bound": 0.01, "at_least": False}, verdict)
        assert figure["samples"] == pytest.approx(shares)


def test_data_that_is_waited_for_is_read_from_files_cropped_and_flipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeAccounts(monkeypatch, [0.0])
    accounting.accounting(True, tmp_path, lambda line: None)
    data = [resolved(options) for options in fake.options if options]
    assert [(one.source, one.crop_padding, one.flip) for one in data] == [("shapes", 4, True)] * 2
    assert [(one.policy, one.cutout) for one in data] == [("none", 0), ("trivial", 16)]


def resolved(options: tuple[str, ...]) -> Data:
    """As `lockstep train` understands them."""
    given = list(zip(options[::2], options[1::2], strict=True))
    settings = [value for name, value in given if name == "--set"]
    request = Request(data=dict(given)["--data"], settings=settings)
    return resolve(find_recipe(f"{RECIPES}:resnet20"), request).data
