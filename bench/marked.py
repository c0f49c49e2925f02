"""Parts of a page that a program writes, between two marks. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def replaced(page: str, name: str, lines: Iterable[str]) -> str:
    """The page with these lines in the place of those between the marks of that name."""
    begin, end = marks(name)
    before, first, rest = page.partition(begin)
    _, last, after = rest.partition(end)
    if not (first and last):
        raise ValueError(f"the page has no {begin.strip()} with an {end.strip()} behind it: put them where it belongs")
    return before + begin + "".join(f"{line}\n" for line in lines) + end + after


def marks(name: str) -> tuple[str, str]:
    return f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
