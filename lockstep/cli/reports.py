"""The commands that show what is there, and delete it; what they say is worded in `report`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from lockstep import strictjson
from lockstep.cli import options
from lockstep.errors import UserError


def predict(parsed: argparse.Namespace) -> int:
    """All images are looked at; the exit code is 2 if some could not be read."""
    from lockstep import api
    from lockstep.report import predictions

    found = api.predict(parsed.run, parsed.images, top=parsed.top, checkpoint=parsed.checkpoint, device=parsed.device)
    problems = [one.problem for one in found if one.problem is not None]
    if parsed.json:
        print("\n".join(map(predictions.to_json, found)))
    elif len(problems) < len(found):
        print(predictions.text(found))
    for problem in problems:
        print(f"lockstep: {problem}", file=sys.stderr)
    return 2 if problems else 0


def runs(parsed: argparse.Namespace) -> int:
    from lockstep.report import runs as report

    if parsed.yes and not parsed.delete:
        raise UserError("--yes says that runs may be deleted, and none is named: give --delete RUN, or leave it out")
    if parsed.delete and parsed.json:
        raise UserError("--json is for the list of runs, and not for --delete: leave one of them out")
    if parsed.delete:
        return _delete(parsed.delete, parsed.yes)
    summaries, problems = report.summarize_all()
    for problem in problems:
        print(f"lockstep: {problem}", file=sys.stderr)
    if parsed.json:
        for summary in summaries:
            print(strictjson.dumps(dataclasses.asdict(summary)))
    elif not summaries and not problems:
        print("there is no run in runs/ yet: start one with `lockstep train demo`")
    elif summaries:
        from rich.console import Console

        console = Console() if sys.stdout.isatty() else Console(width=200)
        console.print(report.table(summaries))
    return 0


def _delete(names: list[str], sure: bool) -> int:
    from lockstep import deletion

    directories = deletion.check(names)
    described = ", ".join(f"{one.name} ({deletion.num_bytes(one) / 1e6:.1f} MB)" for one in directories)
    if not sure:
        if not sys.stdin.isatty():
            raise UserError(f"this would delete {described}: add --yes to do it")
        if input(f"delete {described}? [y/N] ").strip().lower() not in ("y", "yes"):
            print("nothing was deleted")
            return 0
    for directory in directories:
        deletion.delete(directory)
        print(f"deleted {directory.name}")
    return 0


def compare(parsed: argparse.Namespace) -> int:
    from lockstep import rundirectory
    from lockstep.report import comparison

    if parsed.png is not None and not parsed.png.lower().endswith(".png"):
        raise UserError(f"--png writes a PNG picture, and {parsed.png} does not end in .png: name a file that does")
    runs = [comparison.load(rundirectory.existing(name)) for name in dict.fromkeys(parsed.runs)]
    rows, target = comparison.compare(runs, parsed.top1)
    if parsed.html is not None:
        from lockstep.report import page, plotly_script

        _write(parsed.html, page.page(rows, target, plotly_script.script()))
    if parsed.png is not None:
        from lockstep.report import drawing

        drawing.draw(runs, Path(parsed.png))
    if parsed.csv:
        print(comparison.to_csv(rows, target), end="")
        return 0
    from rich.console import Console

    console = Console() if sys.stdout.isatty() else Console(width=240)
    console.print(comparison.table(rows, target))
    return 0


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text)
    except OSError as error:
        raise UserError(f"cannot write {path} ({error.strerror or error}): name another place") from None


def profile(directory: Path) -> None:
    """Where the time of the last session went, and the trace of it."""
    from rich.console import Console

    from lockstep import metrics
    from lockstep.report import profile as report

    console = Console() if sys.stdout.isatty() else Console(width=160)
    console.print(report.table(metrics.read(directory / "metrics.jsonl")))
    traces = sorted(directory.glob("trace*.json"), key=lambda path: path.stat().st_mtime)
    if traces:
        print(f"when each of it was, for https://ui.perfetto.dev or chrome://tracing: {traces[-1]}")


def diff(parsed: argparse.Namespace) -> int:
    """The exit code is 0 if the runs are the same, and 1 if they differ, as with `diff` itself."""
    from lockstep.differences import diff as find
    from lockstep.differences import to_plain

    found = find(parsed.first, parsed.second, again=not parsed.recorded, progress=_show_steps)
    if parsed.json:
        print(strictjson.dumps(to_plain(found), default=str))
    else:
        print(found)
    return 0 if found.known.parted is None and found.known.compared else 1


def _show_steps(done: int, until: int) -> None:
    if sys.stderr.isatty():
        print(f"\rstep {done} of {until}", end="\n" if done == until else "", file=sys.stderr, flush=True)
    elif done % 10 == 0 or done == until:
        print(f"step {done} of {until}", file=sys.stderr, flush=True)


def recipes(parsed: argparse.Namespace) -> int:
    from lockstep.recipes import RECIPES
    from lockstep.report import recipes as report

    if parsed.recipe is not None:
        return _explain_recipe(parsed.recipe, parsed.json)
    if parsed.json:
        for name, function in RECIPES.items():
            print(json.dumps({"name": name, "source": function().data.source, "summary": report.summary(function)}))
    else:
        print(report.listing(RECIPES))
    return 0


def _explain_recipe(name: str, as_json: bool) -> int:
    from lockstep import references
    from lockstep.recipes import RECIPES
    from lockstep.report import recipes as report
    from lockstep.request import find_recipe

    recipe = dataclasses.asdict(find_recipe(name))
    function = references.load(name) if references.is_reference(name) else RECIPES.get(name)
    description = report.describe(function) if function is not None else ""
    if as_json:
        print(json.dumps({"name": recipe["name"], "description": description, "recipe": recipe}))
    else:
        print(f"{description}\n\n" * bool(description) + json.dumps(recipe, indent=2))
    return 0


def digest(parsed: argparse.Namespace) -> int:
    from lockstep import checkpoint, selection

    print(checkpoint.digest_of_files(selection.find_checkpoint(parsed.target)))
    return 0


def config(parsed: argparse.Namespace) -> int:
    from lockstep.request import find_recipe, resolve

    print(json.dumps(dataclasses.asdict(resolve(find_recipe(parsed.recipe), options.request(parsed))), indent=2))
    return 0


def doctor(parsed: argparse.Namespace) -> int:
    from lockstep.doctor import examine, show

    return show(examine(parsed.quick), parsed.json)
