"""The pictures of README: a terminal as it is left, and a table from figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.marked import marks
from bench.showcase import NAME, draw, screen, with_table

WRITTEN = (
    "\x1b[?25lrun one\r\nsteps 0/2\r\x1b[2Kstep 1: note\r\nsteps \x1b[32m1/2\x1b[0m"
    "\r\x1b[2Ksteps \x1b[32m2/2\x1b[0m\r\nsteps of two bars\r\x1b[2K\x1b[1A\x1b[2Kdone\r\n\x1b[?25h"
    "Check it yourself: lockstep digest\r\n"
)
FIGURES = (
    "run,mean_workers,steps_per_second,images_per_second,speed_up,efficiency,best_top1,target_top1,seconds_to_target,"
    "bytes_per_step,deaths,digest\n"
    "one,1.0,7.891,1010.4,1.0,1.0,0.995,0.99,74.94,0.0,0,f21713ded8de59b9\n"
    "two,1.9231,,,,,,0.99,,129000.0,1,\n"
)


def test_bars_that_draw_over_themselves_leave_one_line() -> None:
    assert screen(WRITTEN) == "run one\nstep 1: note\ndone"


def test_a_picture_of_a_terminal_fetches_nothing(tmp_path: Path) -> None:
    draw("$ lockstep demo\n\x1b[32m2/2\x1b[0m <b>", tmp_path / "x.svg")
    text = (tmp_path / "x.svg").read_text()
    assert "lockstep&#160;demo" in text
    assert "&lt;b&gt;" in text
    assert "font-face" not in text
    assert "url(http" not in text


def test_the_table_takes_the_place_of_the_one_before() -> None:
    begin, end = marks(NAME)
    page = with_table(f"before\n{begin}| old |\n{end}after\n", FIGURES)
    before, one, two, after = page.partition(begin)[0], *page.splitlines()[4:6], page.partition(end)[2]
    assert (before, after) == ("before\n", "after\n")
    assert one == "| one | 1 | 7.89 | 1010 | 1.00 | 100% | 99.50% | 74.9 | 0.000 |  | f21713ded8de |"
    assert two == "| two | 1.92 |  |  |  |  |  |  | 0.129 | 1 |  |"
    assert with_table(page, FIGURES) == page


def test_a_page_without_the_marks_is_left_alone() -> None:
    with pytest.raises(ValueError, match=re.escape("has no <!-- bench.showcase --> with an <!-- end of")):
        with_table("no marks\n", FIGURES)
