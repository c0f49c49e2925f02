"""A comparison as one HTML file that needs no network: the table, and curves that can be looked at closely. Pure.

The drawing is done by plotly.js, which is part of the file; what is to be drawn lies beside it as JSON.
"""

from __future__ import annotations

import html
import re
from importlib import resources
from typing import Any

from lockstep import strictjson
from lockstep.report.comparison import Column, Row, Run, cells, columns, goals_of
from lockstep.report.curves import Course, Point

AXES = {"step": "steps", "epoch": "epochs", "seconds": "seconds"}
CHARTS = {"top1": "top1 in evaluation", "loss": "loss in training", "speed": "images per second"}


def page(rows: list[Row], target: float | None, plotly: str) -> str:
    """The whole file; `plotly` is the script that draws."""
    runs = [run for row in rows for run in row.runs]
    goals = goals_of(rows)
    files = resources.files("lockstep.report")
    parts = {
        "title": html.escape(", ".join(run.summary.name for run in runs)),
        "style": (files / "page.css").read_text(),
        "table": _table(columns(target, goals), cells(rows, target)),
        "axes": "".join(_choice(name, title, name == "step") for name, title in AXES.items()),
        "charts": "".join(_chart(name, _title(title, goals)) for name, title in CHARTS.items()),
        "data": _embedded([_plain(run) for run in runs]),
        "plotly": plotly,
        "script": (files / "page.js").read_text(),
    }
    # All at once: what is put in is not looked at again, whatever a run is called.
    return re.sub(r"{{(\w+)}}", lambda match: parts[match[1]], (files / "page.html").read_text())


def _title(title: str, goals: list[str]) -> str:
    """Of a chart: what the runs are judged by may be another figure than top1."""
    return html.escape(title.replace("top1", " or ".join(goals)))


def _table(shown: list[Column], lines: list[list[str]]) -> str:
    head, *body = lines
    rows = "".join(_line(shown, line, "td") for line in body)
    return f"<thead>{_line(shown, head, 'th')}</thead><tbody>{rows}</tbody>"


def _line(shown: list[Column], line: list[str], tag: str) -> str:
    """Every cell knows the name of its column, which it shows where there is no room for columns."""
    made = []
    for column, cell in zip(shown, line, strict=True):
        kind = ' class="text"' if column.is_text else ""
        made.append(f'<{tag}{kind} data-title="{html.escape(column.title)}">{html.escape(cell)}</{tag}>')
    return f"<tr>{''.join(made)}</tr>"


def _choice(name: str, title: str, chosen: bool) -> str:
    mark = " checked" if chosen else ""
    return f'<label><input type="radio" name="axis" value="{name}"{mark}> {title}</label>'


def _chart(name: str, title: str) -> str:
    return f'<figure><figcaption>{title}</figcaption><div class="chart" id="{name}"></div></figure>'


def _plain(run: Run) -> dict[str, Any]:
    course: Course = run.course
    per_epoch = run.epoch_steps or None
    return {
        "name": run.summary.name,
        "goal": run.summary.goal,
        **{name: _points(getattr(course, name), per_epoch) for name in CHARTS},
        "happenings": [
            {"step": one.step, "epoch": _epoch(one.step, per_epoch), "seconds": one.seconds, "what": one.what}
            for one in course.happenings
        ],
    }


def _points(points: tuple[Point, ...], per_epoch: float | None) -> dict[str, list[float | None]]:
    return {
        "step": [point.step for point in points],
        "epoch": [_epoch(point.step, per_epoch) for point in points],
        "seconds": [None if point.seconds is None else round(point.seconds, 3) for point in points],
        "value": [point.value for point in points],
    }


def _epoch(step: int, per_epoch: float | None) -> float | None:
    return None if per_epoch is None else step / per_epoch


def _embedded(plain: object) -> str:
    """JSON inside a script element, which must not end it whatever a run is called. The browser takes no NaN."""
    return strictjson.dumps(plain).replace("<", "\\u003c")
