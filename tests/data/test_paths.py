"""What `--data` may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.data import paths
from lockstep.errors import UserError


def touch(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()


def names(text: str) -> list[str]:
    return [str(path) for path in paths.expand(text)]


def test_a_glob_is_sorted_and_a_list_keeps_its_order(workspace: Path) -> None:
    """F5."""
    touch("c", "a", "b", "below/d")
    assert names("?") == ["a", "b", "c"]
    assert names("c,a") == ["c", "a"]
    assert names("c, ?") == ["c", "a", "b"]  # none twice
    assert names("**/d") == ["below/d"]


def test_what_exists_as_it_is_wins(workspace: Path) -> None:
    """F5: a comma or a star may be a part of a name."""
    touch("a", "b", "a,b", "x*", "xy")
    assert names("a,b") == ["a,b"]
    assert names("x*") == ["x*"]
    assert names("b,a") == ["b", "a"]
    touch("one, two/a", "one, two/b")
    assert names("one, two/a,one, two/b") == ["one, two/a", "one, two/b"]
    assert names("one, two/?") == ["one, two/a", "one, two/b"]


def test_what_does_not_exist_is_named(workspace: Path) -> None:
    touch("a")
    with pytest.raises(UserError, match="there is no b"):
        paths.expand("a,b")
    with pytest.raises(UserError, match=r"there is no \*\.bin: no file fits"):
        paths.expand("*.bin")
    with pytest.raises(UserError, match="there is no"):
        paths.expand("x" * 5000)


def test_absolute_paths_mean_the_same(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch("one, two/a", "one, two/b", "c")
    found = paths.absolute("one, two/?,c")
    monkeypatch.chdir("/")
    assert [path.name for path in paths.expand(found)] == ["a", "b", "c"]
