"""What is said about settings that a stored configuration overrules."""

from __future__ import annotations

from dataclasses import replace

from lockstep.config import Script
from lockstep.recipes.demo import demo
from lockstep.settings import ignored


def test_what_is_ignored_on_resume_is_shown_as_it_was_typed() -> None:
    one, other, none = (
        replace(demo(), script=Script(path="own.py", arguments=arguments))
        for arguments in (("--epochs", "1"), ("--name", "my second"), ())
    )
    says = "the stored configuration wins: script.arguments stays"
    assert ignored(one, other) == [f"{says} --epochs 1, --name 'my second' is ignored"]
    assert ignored(one, none) == [f"{says} --epochs 1, (none) is ignored"]


def test_numbers_that_are_ignored_are_shown_as_set_takes_them() -> None:
    stored, asked = (
        replace(demo(), schedule=replace(demo().schedule, boundaries=numbers)) for numbers in ((0.5, 0.75), (0.3,))
    )
    assert ignored(stored, asked) == [
        "the stored configuration wins: schedule.boundaries stays [0.5, 0.75], [0.3] is ignored"
    ]
