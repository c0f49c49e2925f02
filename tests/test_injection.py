"""Failures on purpose that nobody would suffer are refused before the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep import injection
from lockstep.cli import main
from lockstep.injection import Rule


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("kil worker=1 step=5 phase=data", "unknown action in LOCKSTEP_INJECT 'kil': did you mean 'kill'?"),
        ("kill worker=1 step=5", "'kill worker=1 step=5' names no phase: give phase=..."),
        ("kill wrker=1 step=5 phase=data", "unknown field in LOCKSTEP_INJECT 'wrker': did you mean 'worker'?"),
        ("kill step=5 phase=data", "names no worker: give worker=..."),
        ("kill worker=1 step=5 phase=exchnge", "unknown phase in LOCKSTEP_INJECT 'exchnge': did you mean 'exchange'?"),
        ("kill worker=one phase=data", "a number is missing in 'kill worker=one phase=data'"),
        ("flip-gradient worker=1", "names no step"),
        ("slow worker=1", "names no factor"),
    ],
)
def test_a_mistyped_rule_is_one_sentence(
    rule: str, sentence: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with injection.rules(f"slow worker=0 factor=2; {rule}"):
        assert main(["train", "demo", "--steps", "1"]) == 2
    shown = capsys.readouterr().err
    assert sentence in shown
    assert shown.count("\n") == 1
    assert not (workspace / "runs").exists()


def test_a_rule_without_a_step_strikes_at_the_first() -> None:
    assert Rule.parse("kill worker=1 phase=push").is_at(7, "push")
