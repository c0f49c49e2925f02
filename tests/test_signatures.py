"""What is read from a source without running it, and where it rather says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.errors import UserError
from lockstep.signatures import parameters


def read(tmp_path: Path, text: str, name: str = "net") -> list[str] | None:
    (tmp_path / "mine.py").write_text(text)
    return parameters(tmp_path / "mine.py", name)


def test_parameters_of_a_function_also_below_a_condition(tmp_path: Path) -> None:
    assert read(tmp_path, "def net(a, b=1, *, c=2):\n    d = 1\n") == ["a", "b", "c"]
    assert read(tmp_path, "if True:\n    def net(a): ...\n") == ["a"]


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
