"""The page of `lockstep compare --html`, in a real browser: Debian's chromium."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep import injection
from tests.conftest import RECIPE, run

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium")

QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
NAME = "<b>bold</b>&'\"<script>window.broken=1<{{script}}"
JOIN = {"kind": "generation", "step": 9, "generation": 3, "joined": [2], "causes": ["join"], "workers": 2}
FOLLOWED = {"kind": "eval", "step": 9, "top1": 0.5, "time": 1e10}
"""An evaluation from elsewhere, years later, of a checkpoint of which nobody knows when it was written."""


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("page")
    train = ["train", *RECIPE, "--set", "evaluation.every_steps=6"]
    with injection.rules("kill worker=1 step=5 phase=exchange"):
        assert run(*train, "--no-replace", "--workers", "2", "--run", "two", cwd=root).returncode == 0
    shutil.copytree(root / "runs" / "two", root / "runs" / NAME)
    _let_one_join(root / "runs" / NAME / "metrics.jsonl")
    _lose_a_loss(root / "runs" / NAME / "metrics.jsonl")
    (root / "runs" / NAME / "followed.jsonl").write_text(json.dumps(FOLLOWED))
    before = Path.cwd()
    os.chdir(root)
    try:
        result = run("compare", "two", f"runs/{NAME}", "--html", "compare.html")
    finally:
        os.chdir(before)
    assert result.returncode == 0, result.stderr
    return root / "compare.html"


def _let_one_join(path: Path) -> None:
    """As if a worker had joined behind the death, at the time of the last row."""
    lines = path.read_text().splitlines()
    row = JOIN | {"time": json.loads(lines[-1])["time"]}
    path.write_text("\n".join([*lines[:-1], json.dumps(row), lines[-1], ""]))


def _lose_a_loss(path: Path) -> None:
    """As if the loss of the first row had been no number; older versions wrote it so."""
    path.write_text(re.sub(r'"loss": [^,]+', '"loss": NaN', path.read_text(), count=1))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=[*QUIET, "--disable-sync", "--no-first-run"]
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, page_file: Path) -> Iterator[Any]:
    """The page without a network; whatever it complains of, or asks for, is an error."""
    context = browser.new_context(offline=True)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request",
        lambda request: None if request.url.startswith(("file:", "data:", "blob:")) else complaints.append(request.url),
    )
    page.goto(page_file.as_uri())
    yield page
    assert complaints == []
    context.close()


def curves(page: Any, chart: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.evaluate(
        f"document.getElementById('{chart}').data.map(one => "
        "({x: one.x, y: one.y, name: one.name, text: one.text, symbol: one.marker.symbol}))"
    )
    return found


def test_the_curves_of_all_runs_are_there(page: Any) -> None:
    for chart in ("top1", "loss", "speed"):
        assert page.locator(f"#{chart} .scatterlayer .trace").count() == 4, "a line of each, and its marks"
    first, second = curves(page, "top1")[:2]
    assert (first["x"], second["x"]) == ([6, 12, 18, 24], [6, 9, 12, 18, 24])
    assert all(0 <= value <= 1 for value in first["y"])


def test_a_figure_that_is_no_number_is_a_gap_in_its_curve_alone(page: Any) -> None:
    whole, lacking = curves(page, "loss")[:2]
    assert whole["x"] == lacking["x"]
    assert [None, *whole["y"][1:]] == lacking["y"]


def test_deaths_and_joins_are_marked(page: Any) -> None:
    for chart in ("top1", "loss", "speed"):
        first, second = curves(page, chart)[2:]
        assert len(first["x"]) == 1, "a death"
        assert second["x"] == [*first["x"], 9], "the same death, and a join"
        assert second["symbol"] == ["x", "circle-open"]
        assert "worker 1 was killed by SIGKILL" in first["text"][0]
        # a path for every mark, none of them cut off at the edge of the chart
        assert page.locator(f"#{chart} .scatterlayer .trace:nth-child(4) .points path").count() == 2


def test_a_click_on_a_name_hides_its_curve(page: Any) -> None:
    page.locator("#loss .legendtoggle").first.click()
    page.wait_for_function("document.getElementById('loss').data[0].visible === 'legendonly'")
    assert page.locator("#loss .scatterlayer .trace").count() == 3


def test_the_toggles_change_what_curves_are_drawn_against(page: Any) -> None:
    page.get_by_label("seconds").check()
    first, second = curves(page, "top1")[:2]
    assert first["x"] != [6, 12, 18, 24]
    assert (second["x"], second["y"]) == (first["x"], first["y"]), "what has no time is left out"
    assert page.locator("#top1 .xtitle").text_content() == "seconds"
    page.get_by_label("epochs").check()
    assert curves(page, "loss")[0]["x"][-1] == pytest.approx(24 * 16 / 10000)
    page.get_by_label("steps").check()
    assert curves(page, "top1")[0]["x"] == [6, 12, 18, 24]


def test_names_from_the_file_system_are_text(page: Any) -> None:
    assert page.evaluate("window.broken") is None
    assert f"runs/{NAME}" in page.locator("tbody").inner_text()
    assert page.locator("h1 b, td b, .legend b").count() == 0
    assert page.locator("h1").inner_text() == page.title() == f"two, runs/{NAME}"
    assert page.locator("#top1 .legendtext").all_text_contents() == ["two", f"runs/{NAME}"]


def test_dark_light_and_a_phone(page: Any) -> None:
    colours = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        colours.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2
    page.set_viewport_size({"width": 360, "height": 740})
    page.wait_for_function("document.querySelector('#top1 .main-svg').getBoundingClientRect().width <= 360")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    digest = page.locator("tbody tr:first-child td").last
    assert digest.evaluate("one => one.getBoundingClientRect().right") <= 360, "no figure is beyond the edge"
    assert digest.evaluate("one => getComputedStyle(one, '::before').content") == '"digest"'


def test_on_paper_the_toggles_are_gone_and_everything_is_dark_on_white(page: Any) -> None:
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("fieldset").is_hidden()
    assert page.locator("#top1").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.wait_for_function("document.getElementById('top1').layout.font.color === '#1b1f24'")
    page.emulate_media(media="screen", color_scheme="dark")
    page.wait_for_function("document.getElementById('top1').layout.font.color === '#e6edf3'")
