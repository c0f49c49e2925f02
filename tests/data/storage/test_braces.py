"""Names in braces."""

from __future__ import annotations

import pytest

from lockstep.data.storage.braces import expand
from lockstep.errors import UserError


def test_numbers_keep_their_zeros() -> None:
    assert expand("a-{0008..0011}.tar") == ["a-0008.tar", "a-0009.tar", "a-0010.tar", "a-0011.tar"]
    assert expand("{8..11}") == ["8", "9", "10", "11"]
    assert expand("{08..11}") == ["08", "09", "10", "11"]
    assert expand("{2..0}") == ["2", "1", "0"]


def test_lists_and_products() -> None:
    assert expand("{train,more}.tar") == ["train.tar", "more.tar"]
    assert expand("{a,b}/{0..1}") == ["a/0", "a/1", "b/0", "b/1"]
    assert expand("{a,}") == ["a", ""]


def test_what_is_no_range_stays() -> None:
    for text in ("plain", "{}", "{a}", "{a..b}", "}{", "{1..}", ""):
        assert expand(text) == [text]


def test_too_many_names_are_refused_before_they_are_made() -> None:
    for text in ("{0..999999999999999999}", "{0..9999}{0..9999}", "{1,2}" * 64):
        with pytest.raises(UserError, match="check its numbers"):
            expand(text)
