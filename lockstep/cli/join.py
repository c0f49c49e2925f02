"""The command `lockstep join`: it imports nothing heavy, and reads the token where nobody else sees it."""

from __future__ import annotations

import argparse
import os
import sys

from lockstep.errors import UserError

VARIABLE = "LOCKSTEP_TOKEN"


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("address", metavar="HOST:PORT", help="as `lockstep train --listen` shows it")
    command.add_argument("--workers", type=int, default=1, metavar="K", help="how many may run on this host (1)")


def join(parsed: argparse.Namespace) -> int:
    import asyncio

    from lockstep import addresses, agent

    host, port = addresses.to_join(parsed.address)
    if parsed.workers < 1:
        raise UserError(f"--workers takes a number of at least 1, not {parsed.workers}")
    one = agent.Agent(host, port, _token(), parsed.workers, _say)
    ending = asyncio.run(one.run())
    is_failed = ending.state == "failed"
    print(agent.describe(ending), file=sys.stderr if is_failed else sys.stdout)
    return 1 if is_failed else 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _token() -> str:
    """From the environment, or typed unseen; never from the command line, which everybody on the host can read."""
    if token := os.environ.pop(VARIABLE, "").strip():
        return token
    if not sys.stdin.isatty():
        raise UserError(
            f"the token of the run is missing: set {VARIABLE}, or join from a terminal, where it is asked for"
        )
    import getpass

    try:
        token = getpass.getpass("token: ").strip()
    except EOFError:
        token = ""
    if not token:
        raise UserError("no token was typed: it stands beside the command that `lockstep train --listen` shows")
    return token
