"""`python -m lockstep.script.program script.py [arguments]`: runs a script as a worker, or only up to its loop.

The supervisor's address is in the environment of a worker; in that of a process that describes the script there is a
descriptor instead, on which `lockstep launch` waits for what the script is.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from pathlib import Path
from types import TracebackType

from lockstep.enlist import enlist
from lockstep.errors import JobError, UserError
from lockstep.script import session
from lockstep.script.training import tell
from lockstep.worker import finish, report_error

DESCRIBE = "LOCKSTEP_DESCRIBE"
"""The number of the descriptor."""


def main() -> None:
    path, *arguments = sys.argv[1:]
    if (descriptor := os.environ.pop(DESCRIBE, None)) is not None:
        os.set_inheritable(int(descriptor), False)
        describe(int(descriptor), path, arguments)
    else:
        work(path, arguments)


def describe(descriptor: int, path: str, arguments: list[str]) -> None:
    """Run the script until its loop begins, where this process ends. If it ends before, say how."""
    session.current = session.Describing(descriptor, path, tuple(arguments))
    try:
        run(path, arguments)
        tell(descriptor, {"ended": True})
    except SystemExit as end:
        tell(descriptor, {"exit": code_of(end)})
        raise  # so that what it says is said
    except UserError as error:
        tell(descriptor, {"user": str(error)})
    except Exception as error:
        tell(descriptor, {"error": trimmed(error, path)})


def work(path: str, arguments: list[str]) -> None:
    """Take part in a job."""
    line, membership, welcome = enlist()
    current = session.current = session.Session(line, membership, welcome)
    try:
        membership.listen()
        try:
            run(path, arguments)
        except SystemExit as end:
            if code_of(end) != 0:
                raise JobError(f"the script ended with {end.code!r}, by sys.exit or exit") from None
        if current.worker is None or current.digest is None:
            raise UserError("the script left its loop before the last step: give job.batches as many as it shall do")
        finish(current.worker, current.digest)
    except BaseException as error:
        text = None if isinstance(error, UserError | JobError) else trimmed(error, path)
        report_error(error, membership, current.worker, text)
    membership.wait(lambda: False)  # the reader ends the process at the supervisor's word


def run(path: str, arguments: list[str]) -> None:
    """As `python script.py arguments` does it."""
    sys.argv = [path, *arguments]
    sys.path[0] = str(Path(path).resolve().parent)
    runpy.run_path(path, run_name="__main__")


def code_of(end: SystemExit) -> int:
    """As the interpreter takes it."""
    return end.code if isinstance(end.code, int) else int(end.code is not None)


def trimmed(error: BaseException, path: str) -> str:
    """The traceback from the script on: what started the script is not what a user looks for."""
    frames: TracebackType | None = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != path:
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames or error.__traceback__))


if __name__ == "__main__":
    main()
