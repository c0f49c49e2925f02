"""What is read from a source without running it, and where it rather says nothing."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from lockstep.calling import needed
from lockstep.errors import UserError
from lockstep.signatures import parameters, signature


def read(tmp_path: Path, text: str, name: str = "net") -> list[str] | None:
    (tmp_path / "mine.py").write_text(text)
    return parameters(tmp_path / "mine.py", name)


def test_parameters_of_a_function_also_below_a_condition(tmp_path: Path) -> None:
    assert read(tmp_path, "def net(a, b=1, *, c=2):\n    d = 1\n") == ["a", "b", "c"]
    assert read(tmp_path, "if True:\n    def net(a): ...\n") == ["a"]
    assert read(tmp_path, "class net(Base):\n    def __init__(self, a, /, b=1, *c): ...\n") == ["a", "b"]


def test_what_must_be_given_is_read_as_python_tells_it(tmp_path: Path) -> None:
    text = "def net(a, b, /, c, d=1, *e, f, g=2, **h): ..."
    (tmp_path / "mine.py").write_text(text)
    scope: dict[str, Any] = {}
    exec(text, scope)
    found, told = signature(tmp_path / "mine.py", "net"), inspect.signature(scope["net"])
    assert found is not None
    assert [(one.name, one.kind) for one in found.parameters.values()] == [
        (one.name, one.kind) for one in told.parameters.values()
    ]
    assert needed(found, ["a", "c"]) == needed(told, ["a", "c"]) == ["a", "b", "f"]


@pytest.mark.parametrize(
    "text",
    [
        "def net(a, **more): ...",
        "@decorated\ndef net(a): ...",
        "def net(a): ...\nnet = wrapped(net)",
        "try:\n    def net(a): ...\nexcept E:\n    def net(b): ...",
        "from torch.nn import Linear as net",
        "import net",
        "class net: ...",
        "@dataclass\nclass net:\n    def __init__(self, a): ...",
        "class net:\n    def __new__(cls, a): ...\n    def __init__(self, b): ...",
        "net = lambda a: a",
        "from elsewhere import *",
        "def __getattr__(name): ...",
        "globals()['net'] = 1",
    ],
)
def test_what_only_running_it_would_tell_is_left_open(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) is None


def test_names_inside_of_functions_do_not_count(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"unknown name in .*mine.py 'net': did you mean 'nets'\? known are nets"):
        read(tmp_path, "def nets():\n    net = 1\n    def net(): ...\n")


def test_a_syntax_error_is_one_sentence_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"mine.py, line 2: "):
        read(tmp_path, "x = 1\ndef net(:\n")
