"""The local engine, but that it takes worker 1 for dead when there is a file `blind`, while the process lives on.

`python -m tests.engines.blind train ... --engine blind` is the command `lockstep` with this engine registered.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from lockstep import cli
from lockstep.engines import ENGINES, Command, Entry, OnExit
from lockstep.engines.local import Local


class Blind(Local):
    async def start(self, command: Command, on_exit: OnExit) -> None:
        await super().start(command, on_exit)
        if command.id == 1:
            self._look(on_exit)

    def _look(self, on_exit: OnExit) -> None:
        if Path("blind").exists():
            on_exit(1, "was lost from sight", True)
        else:
            asyncio.get_running_loop().call_later(0.05, self._look, on_exit)


if __name__ == "__main__":
    ENGINES["blind"] = Entry("for tests", Blind)
    sys.exit(cli.main(sys.argv[1:]))
