"""What a session of measurements has found so far: a file that survives interruptions, so nothing is done twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Ledger:
    """Entries by their keys, written after every one; empty if what it was begun under (`identity`) has changed."""

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self._path = path
        self._identity = dict(identity)
        self.entries: dict[str, Any] = {}
        self.seconds: dict[str, float] = {}
        """How long each took."""
        self.dropped: list[str] = []
        """What of the identity has changed since the session began that is not gone on with."""
        if path.exists():
            self._read()

    def _read(self) -> None:
        try:
            plain = json.loads(self._path.read_text())
            before = dict(plain["identity"])
            entries, seconds = dict(plain["entries"]), dict(plain["seconds"])
        except (ValueError, KeyError, TypeError):
            self.dropped = ["a file that cannot be read"]
            return
        keys = {*before, *self._identity}
        self.dropped = sorted(key for key in keys if before.get(key) != self._identity.get(key))
        if not self.dropped:
            self.entries, self.seconds = entries, seconds

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    def add(self, key: str, entry: Any, seconds: float) -> None:
        """At once or not at all: whoever is killed while writing leaves the old file."""
        self.entries[key], self.seconds[key] = entry, seconds
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".new")
        plain = {"identity": self._identity, "entries": self.entries, "seconds": self.seconds}
        temporary.write_text(json.dumps(plain, indent=1) + "\n")
        temporary.replace(self._path)

    def close(self) -> None:
        """The session is over; the next one begins anew."""
        self.entries, self.seconds = {}, {}
        self._path.unlink(missing_ok=True)


def opened(path: Path, identity: Mapping[str, Any], fresh: bool, whose: str = "") -> Ledger:
    """That of a session that was interrupted, unless it is not wanted; why it is not gone on with is said."""
    if fresh:
        path.unlink(missing_ok=True)
    ledger = Ledger(path, identity)
    if ledger.dropped:
        print(
            f"{whose}an earlier session is not gone on with, because of another {', another '.join(ledger.dropped)}",
            flush=True,
        )
    return ledger
