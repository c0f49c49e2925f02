"""What is mistyped gets the nearest known name, in one sentence."""

from __future__ import annotations

import pytest

from lockstep.cli import main
from tests.conftest import REPOSITORY


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("trian demo", "unknown command 'trian': did you mean 'train'?"),
        ("train demo --wokers 2", "unknown option '--wokers': did you mean '--workers'?"),
        ("train demo --wokers=2", "unknown option '--wokers': did you mean '--workers'?"),
        (
            "launch --epochs 1 s.py",
            "unknown option '--epochs': if it is the script's own, give it after the script; see",
        ),
        ("launch --wokers 2 s.py", "unknown option '--wokers': did you mean '--workers'?"),
        (
            "compare a --png x.jpeg",
            "--png writes a PNG picture, and x.jpeg does not end in .png: name a file that does",
        ),
        ("runs --josn", "did you mean '--json'?"),
        ("train demo --device cdua", "unknown value of --device 'cdua': did you mean 'cuda'?"),
        ("train demo --precision fp23", "did you mean 'fp32'?"),
        ("train demo another", "'another' is one argument too many; see `lockstep train --help`"),
        ("compare a b --csv out.csv", "one argument too many: --csv takes no file, redirect it with `> out.csv`"),
        ("train demo --steps many", "argument --steps: invalid int value: 'many'; see `lockstep train --help`"),
        ("evaluate", "arguments are required: RUN; see `lockstep evaluate --help`"),
        ("", "arguments are required: COMMAND; see `lockstep --help`"),
        ("train demo --qqq", "unknown option '--qqq'"),
        ("evaluate last --logger csv", "unknown option '--logger'"),
        ("evaluate last --histograms-every 1", "unknown option '--histograms-every'"),
        ("evaluate last --evaluator", "unknown option '--evaluator'"),
        ("evaluate last --verify-every 1", "unknown option '--verify-every'"),
        ("evaluate last --strategy server", "unknown option '--strategy'"),
        ("runs --yes", "--yes says that runs may be deleted, and none is named: give --delete RUN, or leave it out"),
        ("runs --json --delete a --yes", "--json is for the list of runs, and not for --delete: leave one of them out"),
    ],
)
def test_a_mistyped_argument_is_one_sentence(typed: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(typed.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert sentence in shown.err


def test_the_page_of_commands_shows_the_sentences_of_today(capsys: pytest.CaptureFixture[str]) -> None:
    page = (REPOSITORY / "docs/commands.md").read_text()
    for typed in ("trian demo", "train demo --wokers 2", "train demo --batch-size 130"):
        assert main(typed.split()) == 2
        assert capsys.readouterr().err in page


def test_options_may_still_be_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "demo", "--batch", "64"]) == 0
    assert '"global_batch": 64' in capsys.readouterr().out
