"""Label files: what is wrong with a line is told with its number."""

from __future__ import annotations

import pytest

from lockstep.data.layouts import labels
from lockstep.errors import UserError


def test_names_are_looked_up_without_their_folders() -> None:
    """F19"""
    found = labels.parse(b"b.JPEG 1\nx/y/a.JPEG 0\r\n \nname with blanks.JPEG\t 12 \n", "train.txt")
    assert len(found) == 3
    assert found.num_classes == 13
    wanted = [b"a.JPEG", b"none", b"name with blanks.JPEG", b"zzz", b"", b"a.JPEGx"]
    assert found.of(wanted).tolist() == [0, -1, 12, -1, -1, -1]


def test_many_lines_take_little_memory() -> None:
    """Chunks are put together in one order, whatever the width of names in each."""
    lines = [f"n{number:0{4 + number % 7}d}.JPEG {number % 1000}" for number in range(150_000, 0, -1)]
    found = labels.parse("\n".join(lines).encode(), "train.txt")
    assert found.of([line.split()[0].encode() for line in lines[:5]]).tolist() == [0, 999, 998, 997, 996]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "holds no labels"),
        (b"\n  \n", "holds no labels"),
        (b"a.JPEG 1\nb.JPEG\n", "line 2: 'b.JPEG' is not `name label`"),
        (b"a.JPEG 1\nb.JPEG one\n", "line 2: .* is not `name label`"),
        (b"a.JPEG -1\n", "line 1: .* is not `name label`"),
        (b"7\n", "line 1: '7' is not `name label`"),
        (b"a.JPEG 1\n\nb.JPEG 100000\n", "line 3: label '100000' is out of range 0 to 99999"),
        (b"a.JPEG 11111111111111111111111\n", "line 1: label .* is out of range"),
        (b"a.JPEG 1\nb.JPEG 2\nx/a.JPEG 1\nb.JPEG 2\n", "line 3: 'a.JPEG' has a label already, in line 1"),
        (b"folder/ 1\n", "line 1: '' is no name of a file"),
        (b"a\0.JPEG 1\n", "line 1: .* is no name of a file"),
        (b"a" * 300 + b" 1\n", "line 1: .* is no name of a file"),
        (b"a" * 10_000_000, "line 1: .* is not `name label`"),
    ],
)
def test_what_is_wrong_with_a_line_is_told_with_its_number(text: bytes, told: str) -> None:
    """F19: duplicate, malformed or out of range."""
    with pytest.raises(UserError, match=told) as error:
        labels.parse(text, "train.txt")
    assert len(str(error.value)) < 250
    assert str(error.value).isprintable()
