"""An engine that cannot end a process, as when the way to its host is cut: an expelled worker lives on.

`python -m tests.engines.weak train ... --engine weak` is the command `lockstep` with this engine registered.
"""

from __future__ import annotations

import sys

from lockstep import cli
from lockstep.engines import ENGINES, Entry, Site
from lockstep.engines.local import Local


class Weak(Local):
    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._is_closing = False

    def kill(self, id_: int) -> None:
        if self._is_closing:
            super().kill(id_)

    async def close(self, grace_seconds: float) -> None:
        self._is_closing = True
        await super().close(grace_seconds)


if __name__ == "__main__":
    ENGINES["weak"] = Entry("for tests", Weak)
    sys.exit(cli.main(sys.argv[1:]))
