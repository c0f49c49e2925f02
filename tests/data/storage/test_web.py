"""Answers of web servers; requests are tested with those who make them, in `test_http` and `test_s3`."""

from __future__ import annotations

import pytest

from lockstep.data.storage import Object
from lockstep.data.storage.web import Answer
from lockstep.errors import UserError

FOUND = Object("https://host/x.tar", 100, "tag")


def test_only_the_part_that_was_asked_for_is_taken() -> None:
    assert Answer(206, {"Content-Range": "bytes 5-9/100"}, b"fghij").taken(FOUND, 5, 10) == b"fghij"
    assert Answer(200, {}, b"abcdefghijkl").taken(FOUND, 5, 10) == b"fghij"
    for answer in (
        Answer(206, {"Content-Range": "bytes 50-54/100"}, b"fghij"),
        Answer(206, {"Content-Range": "bytes 5-8/100"}, b"fghi"),
        Answer(206, {}, b"fghij"),
        Answer(200, {}, b"abcdefg"),
        Answer(416, {"Content-Range": "bytes */3"}, b""),
    ):
        with pytest.raises(UserError, match=r"x.tar ends at byte"):
            answer.taken(FOUND, 5, 10)


def test_sizes_and_codes() -> None:
    assert Answer(206, {"Content-Range": "bytes 0-0/100"}, b"a").size == 100
    assert Answer(206, {"Content-Range": "bytes 0-0/*"}, b"a").size is None
    assert Answer(416, {"Content-Range": "bytes */0"}, b"").size == 0
    assert Answer(200, {"Content-Length": "7"}, b"").size == 7
    assert Answer(200, {}, b"").size is None
    assert Answer(403, {}, b"<Error><Code>AccessDenied</Code></Error>").code == "AccessDenied"
    assert Answer(403, {}, b"<Code>no code & more</Code>").code == ""
