"""What a terminal shows while a run goes on."""

from __future__ import annotations

import sys

import pytest

from lockstep.progress import Bar, describe_eval, describe_train, display

ROW = {"loss": 0.5, "top1": 0.25, "examples": 100}


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


@pytest.mark.parametrize(("is_terminal", "says_result"), [(True, False), (True, True), (False, False)])
def test_a_result_that_the_command_prints_is_not_shown_twice_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_terminal: bool, says_result: bool
) -> None:
    """A result that goes to a file or a pipe is still shown."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    shown = display(says_result=says_result)
    shown.start("run", 0, 20)
    for step in (10, 20):
        shown.eval_row({**ROW, "step": step})
    shown.close()
    lines = capsys.readouterr().err
    assert "step 10: top1 25.00%, loss 0.5000 on 100 test images" in lines
    assert ("step 20: top1" in lines) is (says_result or not is_terminal)


def test_names_are_neither_markup_nor_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Bar()
    bar.start("run a[/b]", 0, 100)
    bar.train_row({"step": 10, "loss": 0.5, "metric": "x[/y]", "x[/y]": 0.25, "images_per_second": 3000.0})
    bar.note("run exp[red]:bug:")
    bar.close()
    shown = capsys.readouterr().err
    assert "run a[/b]" in shown
    assert "x[/y] 0.25" in shown
    assert "run exp[red]:bug:" in shown


def test_what_are_no_images_are_not_called_so() -> None:
    """As in runs on vectors; `images_per_second` is the name of a figure, and stays."""
    row = {**ROW, "step": 10, "lr": 0.1, "steps_per_second": 2.0, "images_per_second": 64.0}
    assert describe_train(row).endswith("2.00 steps/s, 64 images/s")
    assert describe_train({**row, "counted": "samples"}).endswith("2.00 steps/s, 64 samples/s")
    assert describe_eval({**row, "counted": "samples"}).endswith("on 100 test samples")
    assert describe_eval({**row, "counted": "samples", "held_out": True}).endswith("on 100 held-out samples")
