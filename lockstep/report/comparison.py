"""`lockstep compare`: runs next to each other. What is compared, and the tables; pictures are in files of their own."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lockstep import inputs, metrics, runcode, strategies
from lockstep.config import Job, Recipe
from lockstep.data import description
from lockstep.errors import UserError
from lockstep.inputs import Inputs
from lockstep.report.curves import Course, course
from lockstep.report.runs import Summary, short_digest, summarize
from lockstep.report.sizes import Sizes, sizes, speed_per_worker, together, was_resized
from lockstep.rundirectory import RunDirectory

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run, as its files tell it."""

    summary: Summary
    sizes: Sizes
    """How many workers there really were."""
    speed_per_worker: float | None
    """Images per second for each worker that was there."""
    strategy: str
    engine: str
    seed: int
    global_batch: int
    epoch_steps: float
    """Steps that show the data once."""
    bytes_per_step: float | None
    """That the first worker sent."""
    course: Course
    trained: str
    """What was trained, but for the seed: runs in which this is equal can be told apart by speed alone."""
    settings: str
    """How and where."""


@dataclass(frozen=True)
class Row:
    """Runs that differ in the seed alone, most often one."""

    runs: tuple[Run, ...]
    speed_up: float | None
    """Images per second, next to one worker with the same recipe; None if none is compared."""
    efficiency: float | None
    """The same for each worker that was there."""
    seconds_to: tuple[float, ...]
    """To the accuracy that was asked for, of those runs that reached it."""

    @property
    def first(self) -> Run:
        return self.runs[0]

    @property
    def sizes(self) -> Sizes:
        return together([run.sizes for run in self.runs])

    @property
    def names(self) -> str:
        return ", ".join(run.summary.name for run in self.runs)


def load(directory: RunDirectory) -> Run:
    recipe, job = directory.read_config()
    rows = metrics.read(directory.metrics)
    train = [row for row in rows if row.get("kind") == "train"]
    steps = max((int(row["step"]) for row in train), default=0)
    sent = [row["sent_bytes"] for row in train if "sent_bytes" in row]
    found = description.from_plain(directory.read_json("dataset.json"))
    summary = summarize(directory)
    there = sizes(rows, job.workers)
    workers = there.text if was_resized(rows) else job.workers
    return Run(
        summary=summary,
        sizes=there,
        speed_per_worker=speed_per_worker(rows, job.workers),
        strategy=_strategy(job),
        engine=job.engine,
        seed=recipe.seed,
        global_batch=recipe.global_batch,
        epoch_steps=(0 if found is None else found.train_size) / recipe.global_batch,
        bytes_per_step=sum(sent) / steps if sent and steps else None,
        course=course(rows, metrics.read(directory.followed), summary.goal),
        trained=_trained(recipe, inputs.read(directory.read_json("environment.json"))),
        settings=f"{_strategy(job)}, {workers}, {job.engine}, {job.evaluator}",
    )


def _trained(recipe: Recipe, given: tuple[Inputs, ...]) -> str:
    """Where the data lie, and how far the run has come, makes no difference to what is trained. Which data they are
    does, and what is written in the user's own code."""
    plain = dataclasses.asdict(replace(runcode.with_contents(recipe), name="", seed=0, stop_at=None))
    for name in ("path", "eval_path", "label_path", "eval_label_path", "endpoint_url", "anonymous", "processes"):
        del plain["data"][name]
    return json.dumps([plain, inputs.comparable(given)], sort_keys=True)


def _strategy(job: Job) -> str:
    """Its name, and what was asked of it beyond what is usual."""
    entry, usual = strategies.STRATEGIES[job.strategy], Job(workers=1)
    asked = {option: getattr(job, option) for option in entry.options}
    given = [
        f"{strategies.OPTIONS[option]} {value}"
        for option, value in asked.items()
        if value != (entry.servers if option == "servers" else getattr(usual, option))
    ]
    return " ".join([job.strategy, *given])


def compare(runs: list[Run], top1: float | None = None) -> tuple[list[Row], float | None]:
    """The rows, in the order in which runs were named, and the accuracy whose time they show."""
    if top1 is not None and not 0 < top1 <= 1:
        raise UserError(f"--top1 takes a fraction of 1 such as 0.9, not {top1:g}")
    for run in runs:
        if top1 is not None and run.summary.goal != "top1":
            raise UserError(f"{run.summary.name} is judged by its {run.summary.goal}, not by top1: leave --top1 out")
    target = top1 if top1 is not None else reached_by_all(runs)
    return [_row(group, runs, target) for group in grouped(runs)], target


def grouped(runs: list[Run]) -> list[list[Run]]:
    """Together what differs in the seed alone. Runs with the same seed have a row each."""
    groups: dict[tuple[str, str, int], list[Run]] = {}
    seen: dict[tuple[str, str, int], int] = {}
    for run in runs:
        key = (run.trained, run.settings, run.seed)
        seen[key] = seen.get(key, 0) + 1
        groups.setdefault((run.trained, run.settings, seen[key]), []).append(run)
    return list(groups.values())


def reached_by_all(runs: list[Run]) -> float | None:
    """The highest whole percentage that every run came to."""
    bests = [run.summary.best if run.summary.goal == "top1" else None for run in runs]
    if not bests or any(best is None for best in bests):
        return None
    return _whole_percents(min(best for best in bests if best is not None)) or None


def _whole_percents(share: float) -> float:
    """Rounded down, but for what is only missing because of binary fractions: 0.29 * 100 is a little less than 29."""
    return math.floor(round(share * 100, 6)) / 100


def _times(group: list[Run], target: float | None) -> list[float]:
    if target is None:
        return []
    return [seconds for run in group if (seconds := run.course.seconds_to(target)) is not None]


def _row(group: list[Run], runs: list[Run], target: float | None) -> Row:
    alone = _mean(run.course.images_per_second for run in _alone(group[0], runs))
    speed = _mean(run.course.images_per_second for run in group)
    per_worker = _mean(run.speed_per_worker for run in group)
    return Row(tuple(group), _ratio(speed, alone), _ratio(per_worker, alone), tuple(_times(group, target)))


def _alone(run: Run, runs: list[Run]) -> list[Run]:
    """One worker on the same recipe: with the same strategy, if there is one, and otherwise with any."""
    alone = [other for other in runs if other.trained == run.trained and other.sizes.most == 1]
    return [other for other in alone if other.strategy == run.strategy] or alone


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known else None


def _ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other


# Tables


@dataclass(frozen=True)
class Column:
    title: str
    of_run: Callable[[Run], float | None] | None
    """A number of each run, of which a row shows mean and spread; None where a row has something of its own."""
    of_row: Callable[[Row], str]
    is_text: bool = False


def _best_column(name: str) -> Column:
    """The best of one figure; empty for runs that are judged by another one."""

    def best(run: Run) -> float | None:
        return run.summary.best if run.summary.goal == name else None

    return _number_column(f"best {name}", best, "{:.2%}" if name == "top1" else "{:.4g}")


def goals_of(rows: list[Row]) -> list[str]:
    """What the runs are judged by."""
    return list(dict.fromkeys(run.summary.goal for row in rows for run in row.runs))


def time_to(target: float) -> str:
    """The head of the column with the time to an accuracy."""
    return f"s to {100 * target:g}%"


def columns(target: float | None, goals: list[str]) -> list[Column]:
    time = "" if target is None else time_to(target)
    found = [
        _text_column("run", lambda row: row.names),
        _text_column("strategy", lambda row: row.first.strategy),
        _text_column("engine", lambda row: row.first.engine),
        Column("N", None, lambda row: row.sizes.text),
        _number_column("steps/s", _per_step, "{:.2f}"),
        _number_column("images/s", lambda run: run.course.images_per_second, "{:.0f}"),
        Column("speed-up", None, lambda row: _format(row.speed_up, "{:.2f}")),
        Column("efficiency", None, lambda row: _format(row.efficiency, "{:.0%}")),
        *(_best_column(name) for name in goals),
        Column(time, None, lambda row: spread(list(row.seconds_to), "{:.1f}")),
        _number_column("MB/step", _megabytes, "{:.3f}"),
        Column("deaths", None, lambda row: str(sum(run.summary.deaths for run in row.runs) or "")),
        _text_column("digest", lambda row: ", ".join(short_digest(run.summary) for run in row.runs)),
    ]
    return [column for column in found if column.title]


def _text_column(title: str, of_row: Callable[[Row], str]) -> Column:
    return Column(title, None, of_row, is_text=True)


def _number_column(title: str, of_run: Callable[[Run], float | None], form: str) -> Column:
    def of_row(row: Row) -> str:
        return spread([value for run in row.runs if (value := of_run(run)) is not None], form)

    return Column(title, of_run, of_row)


def _per_step(run: Run) -> float | None:
    speed = run.course.images_per_second
    return None if speed is None else speed / run.global_batch


def _megabytes(run: Run) -> float | None:
    return None if run.bytes_per_step is None else run.bytes_per_step / 1e6


def spread(values: list[float], form: str) -> str:
    """The mean, and behind ± the standard deviation where there are several."""
    if not values:
        return ""
    mean = form.format(statistics.mean(values))
    return mean if len(values) == 1 else f"{mean} ± {form.format(statistics.stdev(values))}"


def _format(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def cells(rows: list[Row], target: float | None) -> list[list[str]]:
    """The table as texts, its head first."""
    shown = columns(target, goals_of(rows))
    return [[column.title for column in shown], *([column.of_row(row) for column in shown] for row in rows)]


def table(rows: list[Row], target: float | None) -> Table:
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False)
    for column in columns(target, goals_of(rows)):
        shown.add_column(Text(column.title), justify="left" if column.is_text else "right", overflow="fold")
    for line in cells(rows, target)[1:]:
        shown.add_row(*map(Text, line))
    return shown


def to_plain(rows: list[Row], target: float | None) -> list[dict[str, Any]]:
    """A table for every run, with its own figures: whoever reads it groups for themselves."""
    runs = [run for row in rows for run in row.runs]
    return [_figures(run, runs, target) for run in runs]


def _figures(run: Run, runs: list[Run], target: float | None) -> dict[str, Any]:
    one, alone = run.summary, _row([run], runs, target)
    return {
        "run": one.name,
        "recipe": one.recipe,
        "strategy": run.strategy,
        "engine": run.engine,
        "workers": one.workers,
        "seed": run.seed,
        "state": one.state,
        "step": one.step,
        "steps_per_second": _per_step(run),
        "images_per_second": run.course.images_per_second,
        "speed_up": alone.speed_up,
        "efficiency": alone.efficiency,
        "best_top1": one.best_top1,
        "target_top1": target,
        "seconds_to_target": None if target is None else run.course.seconds_to(target),
        "bytes_per_step": run.bytes_per_step,
        "deaths": one.deaths,
        "digest": one.digest,
        "goal": one.goal,
        "best": one.best,
        "mean_workers": run.sizes.mean,
    }


def to_csv(rows: list[Row], target: float | None) -> str:
    """A line for every run."""
    out = io.StringIO()
    found = to_plain(rows, target)
    writer = csv.DictWriter(out, list(found[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return out.getvalue()
