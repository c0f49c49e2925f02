"""`lockstep doctor`: is this machine fit for training, and if not, what is to be done?

`CHECKS` is the table of everything that is looked at. A check is a function without arguments that reads one thing and
returns a finding; they are in the files of this package, by topic.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator

from lockstep.doctor import machine, network, selftest, software, storage
from lockstep.doctor.finding import Finding

Check = Callable[[], Finding]

CHECKS: dict[str, Check] = {
    "python": software.python,
    "torch": software.torch_version,
    "packages": software.packages,
    "extras": software.extras,
    "compiler": software.cpp_compiler,
    "processor": machine.cpu,
    "gpus": machine.gpus,
    "cores": machine.cores,
    "memory": machine.memory,
    "shared memory": machine.shared_memory,
    "open files": machine.open_files,
    "loopback": network.loopback,
    "network": network.others,
    "runs": storage.runs,
    "cache": storage.cache,
    "clock": storage.clock,
}
SELF_TEST = "self-test"


def examine(quick: bool) -> Iterator[Finding]:
    """All findings, one after the other; the self-test takes some seconds."""
    checks = CHECKS if quick else {**CHECKS, SELF_TEST: selftest.digests}
    for name, check in checks.items():
        yield _try(name, check)


def _try(name: str, check: Check) -> Finding:
    """A check that fails has found something too."""
    try:
        return check()
    except ImportError as error:
        return Finding("problem", name, f"could not be checked: {error}", software.INSTALL)
    except Exception as error:
        return Finding(
            "problem", name, f"could not be checked: {error!r}", "please report this, it is a bug in Lockstep"
        )


def show(findings: Iterable[Finding], as_json: bool) -> int:
    """Print findings as they come; the exit code is 1 if one of them is a problem."""
    seen = []
    for finding in findings:
        seen.append(finding)
        if not as_json:
            print("\n".join(lines_of(finding)), flush=True)
    count = {level: sum(finding.level == level for finding in seen) for level in ("problem", "warning")}
    if as_json:
        print(json.dumps({**count, "findings": [dataclasses.asdict(finding) for finding in seen]}, indent=2))
    else:
        print(conclusion(count["problem"], count["warning"]))
    return 1 if count["problem"] else 0


def lines_of(finding: Finding) -> list[str]:
    indent = " " * 9
    lines = [f"{finding.level:<8} {finding.name}: {finding.what}"]
    return lines + ([f"{indent}what to do: {finding.advice}"] if finding.advice else [])


def conclusion(problems: int, warnings: int) -> str:
    if not problems and not warnings:
        return "nothing stands in the way: try `lockstep demo`"
    numbers = ((problems, "problem"), (warnings, "warning"))
    counts = " and ".join(f"{count} {word}{'s' * (count > 1)}" for count, word in numbers if count)
    if not problems:
        return f"{counts}: training works here"
    return f"{counts}: training fails here until {'the problem is' if problems == 1 else 'the problems are'} solved"
