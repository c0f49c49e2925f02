"""Lists of shards."""

from __future__ import annotations

import pytest

from lockstep.data.storage.lists import may_be_list, urls_in

URL = "https://host/data/list.txt?version=2"


def test_names_are_relative_to_the_list() -> None:
    text = b"# shards\na.tar\n\n  sub/b.tar \n/c.tar\nhttps://other/d.tar\n"
    assert urls_in(text, URL) == [
        "https://host/data/a.tar",
        "https://host/data/sub/b.tar",
        "https://host/c.tar",
        "https://other/d.tar",
    ]


@pytest.mark.parametrize("text", [b"", b"# nothing\n", b"n01/a.JPEG 7\n", b"490\n361\n", b"\xff\xfe"])
def test_labels_are_no_list(text: bytes) -> None:
    assert urls_in(text, URL) is None


def test_only_texts_may_be_lists() -> None:
    assert may_be_list(URL)
    assert may_be_list("https://host/shards.list")
    assert not may_be_list("https://host/shard.tar?list.txt")
