"""Lists of shards for servers that have no listing: a text file with one name or URL per line. Pure functions."""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

SUFFIXES = (".txt", ".list", ".lst")
MAX_BYTES = 64 << 20


def may_be_list(url: str) -> bool:
    return urlsplit(url).path.endswith(SUFFIXES)


def urls_in(text: bytes, url: str) -> list[str] | None:
    """The URLs that a list names, relative to its own; None if it is no list.

    Files of labels have such names as well: their lines hold two words, or one that is a number.
    """
    try:
        lines = [line.strip() for line in text.decode().splitlines()]
    except UnicodeDecodeError:
        return None
    names = [line for line in lines if line and not line.startswith("#")]
    if not names or any(len(name.split()) > 1 or name.isdecimal() for name in names):
        return None
    return [urljoin(url, name) for name in names]
