"""What a terminal shows while a run goes on."""

from __future__ import annotations

import pytest

from lockstep.progress import Bar


def test_a_second_training_does_not_show_the_bar_of_the_first_again(capsys: pytest.CaptureFixture[str]) -> None:
    """As in the demo, which trains three times."""
    bar = Bar()
    for number in (1, 2):
        bar.start(f"run {number}", 0, 100 * number)
        bar.train_row({"step": 100 * number, "loss": 0.5, "top1": 0.25, "images_per_second": 3000.0})
        bar.close()
    shown = capsys.readouterr().err
    assert shown.count("100/100") == 1
    assert shown.count("200/200") == 1
