"""What `--data` may be: a path, a glob, or several of these with commas between."""

from __future__ import annotations

import glob
import re
from pathlib import Path

from lockstep.data.storage import is_url
from lockstep.errors import UserError


def expand(text: str) -> list[Path]:
    """The paths that are meant, in order; each exists. A glob gives its matches sorted by name."""
    found: list[Path] = []
    for piece in split(text):
        if is_url(piece):
            raise UserError(f"{piece} is not on this host, and the files of this source must be: copy them here first")
        matches = _matches(piece)
        if not matches:
            raise UserError(f"there is no {piece}" + (": no file fits this pattern" if glob.has_magic(piece) else ""))
        found += [path for path in matches if path not in found]
    return found


def absolute(text: str) -> str:
    """The same from any working directory."""
    pieces = split(text)
    return ",".join(one if is_url(one) else _absolute(Path(one)) for one in pieces)


def placed(text: str, base: Path) -> str:
    """The same, with relative paths from a directory."""
    return ",".join(one if "://" in one else str(base / Path(one).expanduser()) for one in split(text, base))


def _absolute(path: Path) -> str:
    return str(path.resolve() if path.exists() else path.absolute())


def split(text: str, base: Path = Path()) -> list[str]:
    """The parts between commas; where a name with a comma exists as it is, it is one part. Commas in braces stay."""
    pieces = re.split(r",(?![^{]*\})", text)
    parts: list[str] = []
    while pieces:
        ends = range(len(pieces), 0, -1)
        end = next((end for end in ends if _matches(",".join(pieces[:end]).strip(), base)), 1)
        parts.append(",".join(pieces[:end]).strip())
        pieces = pieces[end:]
    return [part for part in parts if part] or [text]


def _matches(piece: str, base: Path = Path()) -> list[Path]:
    """A path that exists as it is wins over a glob."""
    if not piece:
        return []
    path = base / piece
    try:
        if path.exists():
            return [path]
        return [Path(one) for one in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207
    except (OSError, ValueError):  # a name that no file system takes
        return []
