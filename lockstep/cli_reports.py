"""The commands that show what is there, and delete it: `predict`, `runs`, `recipes`. Their words are in `report`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

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

    if parsed.delete:
        return _delete(parsed.delete, parsed.yes)
    summaries, problems = report.summarize_all()
    for problem in problems:
        print(f"lockstep: {problem}", file=sys.stderr)
    if parsed.json:
        for summary in summaries:
            print(json.dumps(dataclasses.asdict(summary)))
    elif not summaries:
        print("there is no run in runs/ yet: start one with `lockstep train demo`")
    else:
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
