"""How results are written."""

from __future__ import annotations

from bench import results
from bench.results import Figure, Result


def test_a_figure_without_a_target_says_that_there_is_no_aim() -> None:
    plain = results.to_plain(Result("x", "?", [Figure("a / b", "ratio", [1.0] * 6)]), results.describe_machine(), "", 1)
    assert "| a / b | 1.000 | 1.000 to 1.000 | none | no aim |" in results.section(plain)
