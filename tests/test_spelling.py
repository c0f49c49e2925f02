"""What is said in Python names arguments, and not the options of the command."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep import runs
from lockstep.cli import parser
from lockstep.progress import Silent
from lockstep.request import Request
from lockstep.spelling import ARGUMENTS, IRREGULAR, Respelling, respelt
from tests.conftest import REPOSITORY

COMMANDS = ("train", "resume", "evaluate", "predict", "export", "compare", "diff", "runs")
"""Those that there are in Python too."""
PRINTED = ("confusion", "csv", "delete", "follow", "help", "html", "json", "per-class", "png", "yes")
"""Options that say what such a command prints, writes or asks: in Python there are data instead."""


def _options() -> set[str]:
    commands = next(action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)).choices
    return {
        option
        for command in COMMANDS
        for action in commands[command]._actions
        for option in action.option_strings
        if option.startswith("--")
    }


def test_every_option_of_the_command_is_an_argument_of_that_name_or_is_listed() -> None:
    functions = [lockstep.train, lockstep.resume, *(getattr(runs, name) for name in runs.__all__)]
    given = {name for function in functions for name in inspect.signature(function).parameters}
    assert given >= set(ARGUMENTS)
    given |= {field.name for field in dataclasses.fields(Request)}
    for option in _options() - {f"--{name}" for name in PRINTED}:
        name = respelt(option).partition("=")[0]
        assert name in given, option
    for name in PRINTED:
        assert respelt(f"--{name}") == f"--{name}"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("keep some with --hold-out N, or give --eval-data", "keep some with hold_out=N, or give eval_data"),
        ("take --workers 4 or fewer, or more --leaves", "take workers=4 or fewer, or more leaves"),
        ("as in --data 'DIR/data_batch_[12].bin'", "as in data='DIR/data_batch_[12].bin'"),
        ("with --labels and --eval-labels", "with label_path and eval_label_path"),
        ("--spread and --pack mean nothing", 'placement="spread" and placement="pack" mean nothing'),
        ("with --run NAME --resume it goes on", "with run=NAME resume=True it goes on"),
        ("--no-replace, --no-compile", "replace=False, compile=False"),
        ("--late drop and --wait-for K belong together", "late drop and wait_for=K belong together"),
        ("--set: unknown key 'a'", "settings: unknown key 'a'"),
        ("allow more with --set data.max_broken=N", 'allow more with settings={"data.max_broken": N}'),
        ("(--set data.source=cifar100)", '(settings={"data.source": "cifar100"})'),
        ("--set data.mean_image=FILE.npy.", 'settings={"data.mean_image": "FILE.npy"}.'),
        ("or use `lockstep resume last --steps 3`", "or use `lockstep resume last --steps 3`"),
        ("--nproc-per-node and --no-kill are others'", "--nproc-per-node and --no-kill are others'"),
        ("/data/a--data/b --- x", "/data/a--data/b --- x"),
        ("it failed:\n  usage: own.py --lr 3\nlower --lr", "it failed:\n  usage: own.py --lr 3\nlower lr"),
    ],
)
def test_an_option_is_respelt_and_what_is_none_of_ours_stays(said: str, expected: str) -> None:
    assert respelt(said) == expected


class Heard(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_notes_of_a_display_are_respelt() -> None:
    heard = Heard()
    Respelling(heard).note("13 of 100 shards; --key-prefix n for all")
    assert heard.notes == ["13 of 100 shards; key_prefix n for all"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"workers": 9, "leaves": 4}, r"take workers=4 or fewer, or more leaves \("),
        ({"steps": 2, "epochs": 1}, "either with steps or with epochs"),
        ({"engine": "local", "placement": "pack"}, 'placement="pack" means nothing with engine local'),
        ({"resume": True}, "^resume=True needs the name of the run: give run=NAME, or use `lockstep resume last`$"),
        ({"settings": {"schedule": 3}}, "^settings schedule: this is a group"),
        ({"data": "nowhere"}, "give the directory of the data with data, or one of shapes"),
    ],
)
def test_mistakes_in_python_are_told_with_the_names_of_arguments(
    workspace: Path, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(lockstep.UserError, match=sentence) as raised:
        lockstep.train("demo", progress=False, **options)
    assert "--" not in str(raised.value)
    assert raised.value.__suppress_context__


@pytest.mark.parametrize("option", [*IRREGULAR, "no-replace", "no-tensorboard"])
def test_the_page_about_python_tells_every_option_that_has_another_name(option: str) -> None:
    assert f"`--{option}`" in (REPOSITORY / "docs/python.md").read_text()
