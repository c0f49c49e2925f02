"""The demo: the first thing a newcomer sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Command

NAMES = ("1-worker", "2-workers", "2-workers-one-killed")


@pytest.mark.timeout(240)
def test_the_demo_shows_equal_digests_and_passes_95_percent(lockstep: Command) -> None:
    result = lockstep("demo", timeout=220)
    assert result.returncode == 0, result.stderr
    assert "Same bits, whatever the number of workers, and whether one died" in result.stdout
    assert "worker 1 was killed by SIGKILL; the others go on" in result.stderr
    assert "tensorboard --logdir" in result.stdout
    digests = {lockstep("digest", f"demo-{name}-1").stdout for name in NAMES}
    assert len(digests) == 1
    assert digests.pop()[:32] in result.stdout
    for name in NAMES:
        assert json.loads(Path(f"runs/demo-{name}-1/best.json").read_text())["top1"] > 0.95
