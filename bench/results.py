"""What a benchmark hands back, and how it is written: one JSON file each, and the tables of RESULTS.md."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from bench.ratio import CONFIDENCE, NOISE, Estimate, Target, estimate, verdict

ROOT = Path(__file__).resolve().parent.parent

HEAD = f"""# Measured

Written by `python -m bench`; the samples behind every number are in `bench/out/`. Contestants run interleaved, and
each round gives one sample; speed is that of the median step after a warm-up. Medians, with the {CONFIDENCE:.0%}
interval of order statistics; a verdict is "met" or "not met" only if the whole interval says so. "Not behind" means a
ratio of at least {1 - NOISE:.2f}: the development machine does not resolve differences under {NOISE:.0%}.
"""

UNITS = {
    "ratio": "{:.3f}",
    "share": "{:.2%}",
    "seconds": "{:.2f} s",
    "minutes": "{:.1f} min",
    "images/s": "{:.1f}",
    "MB/s": "{:.0f} MB/s",
    "MiB": "{:.0f} MiB",
    "milliseconds": "{:.2f} ms",
    "count": "{:.0f}",
}
"""How a number of each unit is written."""


@dataclass(frozen=True)
class Figure:
    """One number that a benchmark is for, sampled once per round."""

    what: str
    unit: str
    samples: list[float]
    target: Target | None = None
    exact: bool = False
    """Whether the one sample is the figure itself, as a count is, and not an estimate of it."""


@dataclass(frozen=True)
class Result:
    """Everything that one benchmark found."""

    name: str
    question: str
    figures: list[Figure]
    """Compared with targets, with intervals."""
    table: list[list[str]] = field(default_factory=list)
    """Contestants side by side; the first row names them."""
    measured: list[Figure] = field(default_factory=list)
    """What the figures were computed from."""
    notes: list[str] = field(default_factory=list)
    cells: list[tuple[str, str, list[float], str]] = field(default_factory=list)
    """For the table of everyone side by side: peer, topic, samples, and why there are none."""


def describe_machine() -> dict[str, Any]:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    processor = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    return {
        "processor": processor or platform.machine(),
        "cores": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "load_before": round(os.getloadavg()[0], 2),
        "commit": _commit(),
    }


def _commit() -> str:
    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "lockstep", "bench", ":!bench/RESULTS.md")
        return (git("rev-parse", "--short", "HEAD") or "unknown") + (" with uncommitted changes" if changed else "")
    except OSError:
        return "unknown"


def to_plain(result: Result, machine: dict[str, Any], command: str, seconds: float) -> dict[str, Any]:
    """The contents of `bench/out/<name>.json`."""
    judged = []
    for figure in result.figures:
        found = Estimate(*figure.samples * 3) if figure.exact else estimate(figure.samples)
        judged.append(
            {
                **asdict(figure),
                "median": found.median,
                "interval": None if math.isinf(found.low) else [found.low, found.high],
                "verdict": verdict(found, figure.target) if figure.target else None,
            }
        )
    return {
        "name": result.name,
        "question": result.question,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
        "seconds": round(seconds, 1),
        "machine": machine,
        "figures": judged,
        "table": result.table,
        "measured": [asdict(series) for series in result.measured],
        "notes": result.notes,
        "cells": result.cells,
    }


def write(path: Path, plain: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain, indent=1) + "\n")


def updated(page: str, document: dict[str, Any], order: Sequence[str]) -> str:
    """RESULTS.md with the section of this benchmark as it is now; the others stay, also those measured elsewhere."""
    parts = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    sections = {part.split("\n", 1)[0]: f"## {part.rstrip()}\n" for part in parts}
    sections[document["name"]] = section(document)
    first = [text for name, text in sections.items() if name not in order]  # what was written above all of them
    return "\n".join([HEAD, *first, *(sections[name] for name in order if name in sections)])


def section(plain: dict[str, Any]) -> str:
    lines = [f"## {plain['name']}", "", plain["question"], ""]
    lines += ["| figure | median | 95 % interval | target | verdict |", "|---|---|---|---|---|"]
    lines += [_figure_line(figure) for figure in plain["figures"]]
    if table := plain.get("table"):  # not in files of earlier versions
        lines += ["", *(f"| {' | '.join(row)} |" for row in table)]
        lines.insert(1 - len(table), "|---" * len(table[0]) + "|")
    if plain["measured"]:
        lines += ["", "| measured | median | least to most | samples |", "|---|---|---|---|"]
        lines += [_measured_line(series) for series in plain["measured"]]
    for note in plain["notes"]:
        lines += ["", note]
    lines += [
        "",
        f"{plain['date']}, `{plain['command']}`, {plain['seconds']:.0f} s; {machine_words(plain['machine'])}",
        "",
    ]
    return "\n".join(lines)


def machine_words(machine: dict[str, Any]) -> str:
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}, Python "
        f"{machine['python']}, torch {machine['torch']}, load {machine['load_before']} before the start, commit "
        f"{machine['commit']}."
    )


def _figure_line(figure: dict[str, Any]) -> str:
    form, target = UNITS[figure["unit"]], figure["target"]
    interval = figure["interval"]
    bounds = "too few rounds" if interval is None else f"{form.format(interval[0])} to {form.format(interval[1])}"
    bounds = "exact" if figure.get("exact") else bounds
    wanted = "none" if target is None else f"{'≥' if target['at_least'] else '≤'} {form.format(target['bound'])}"
    verdict_ = figure["verdict"] or "no aim"
    return f"| {figure['what']} | {form.format(figure['median'])} | {bounds} | {wanted} | {verdict_} |"


def _measured_line(series: dict[str, Any]) -> str:
    form, samples = UNITS[series["unit"]], series["samples"]
    middle = form.format(estimate(samples).median)
    spread = f"{form.format(min(samples))} to {form.format(max(samples))}"
    unit = ", images/s" if series["unit"] == "images/s" else ""
    return f"| {series['what']}{unit} | {middle} | {spread} | {len(samples)} |"
