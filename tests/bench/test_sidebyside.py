"""Everyone in one table: every place has a figure of the session, or says why it has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench import bars, feeding, kills, results, sidebyside, speed, suite
from bench.plan import FAILED, OURS, is_failure
from bench.sidebyside import BARE, DDP, HOROVOD, KERAS, KILL, LOADING, ONE, PEERS, RAY_TRAIN, TOPICS, TORCHFT, TWO

MACHINE: dict[str, Any] = {
    "processor": "EPYC",
    "cores": 2,
    "memory_gib": 23.5,
    "system": "Linux",
    "python": "3.11",
    "torch": "2.13",
    "load_before": 0.1,
    "commit": "abc",
}


def made_up(who: str) -> float:
    """Another figure for everyone, so that none can be mistaken for another's."""
    return 100.0 + list(speed.CONTESTANTS).index(who)


def entries() -> dict[str, Any]:
    """What a whole session might find, without measuring."""
    found: dict[str, Any] = {}
    for one in speed.plan(quick=False):
        value = made_up(one.who) * (2 if "2 processes" in one.key else 1)
        found[one.key] = {"images_per_second": value, "first_step_seconds": value / 10, "peak_mib": value * 4}
    for one in feeding.plan(quick=False):
        found[one.key] = made_up(one.who) * 100
    for one in kills.plan(quick=False):
        lost = [made_up(one.who) / 100] * 8
        found[one.key] = {"time_lost": lost, "column": {"median": "1"}, "digests": ["d"], "crashes": []}
    return found


def documents(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    comparisons = suite.COMPARISONS.items()
    return {
        name: results.to_plain(one.conclude(found, False), MACHINE, "python -m bench", 1.0) for name, one in comparisons
    }


def test_every_place_has_a_figure_or_a_reason() -> None:
    filled = sidebyside.cells(documents(entries()))
    assert set(filled) == {(peer, topic) for peer in PEERS for topic in TOPICS}
    for place, cell in filled.items():
        assert bool(cell.samples) != bool(cell.reason), place
    measured = {place for place, cell in filled.items() if cell.samples}
    assert len(measured) == 6 * 9 - 6 - 4 - 1 - 4, "Horovod; whom a death ends; Keras with two; who reads by DataLoader"
    assert filled[DDP, ONE].samples == (made_up(DDP),) * 6
    assert filled[DDP, TWO].samples == (2 * made_up(DDP),) * 6
    assert filled[KERAS, "start-up"].samples[0] == made_up(KERAS) / 10
    assert filled[RAY_TRAIN, KILL].samples == (made_up(RAY_TRAIN) / 100,) * 8
    assert filled[BARE, LOADING].samples[0] == 100 * made_up(BARE)
    assert "does not build against torch" in filled[HOROVOD, ONE].reason


def test_the_table_shows_intervals_and_numbers_its_reasons() -> None:
    filled = sidebyside.cells(documents(entries()))
    head, ours, *_, horovod = sidebyside.table(filled)
    assert head[1] == "images/s of one process"
    assert ours[:2] == [OURS, "100.0 (100.0 to 100.0)"]
    assert len(set(horovod[1:])) == 1
    assert horovod[1].startswith("not measured (")
    number = horovod[1].partition("(")[2]
    assert f"({number} Horovod 0.28.1 does not build" in " ".join(sidebyside.notes(filled))


def test_every_ratio_has_an_interval_and_one_of_three_verdicts() -> None:
    head, *rows = sidebyside.verdicts(documents(entries()))
    assert head[-1] == "verdict"
    assert {row[-1] for row in rows} <= {"met", "not met", "not resolved"}
    assert all(" to " in row[2] and row[3] != "none" for row in rows)
    ratios = {row[0]: row for row in rows}
    assert ratios[f"images/s, 1 process: {OURS} / {BARE}"][-1] == "met"
    assert ratios[f"images/s: {DDP}: two processes / one"][1] == "2.000"
    assert ratios[f"time lost by a kill: {OURS} / {TORCHFT}"][-1] == "met"
    for peer in PEERS[1:-1]:
        assert any(peer in name for name in ratios), peer


def test_a_peer_that_failed_is_named_with_its_reason_and_the_others_stay() -> None:
    found = entries()
    for key in found:
        if TORCHFT in key:
            found[key] = {FAILED: "it failed: no lighthouse"}
    filled = sidebyside.cells(documents(found))
    assert filled[TORCHFT, ONE].reason == filled[TORCHFT, KILL].reason == "torchft: it failed: no lighthouse"
    assert filled[DDP, ONE].samples
    assert not any(TORCHFT in row[0] for row in sidebyside.verdicts(documents(found)))


def test_a_round_in_which_one_failed_is_no_pair() -> None:
    found = entries()
    first = next(key for key in found if key.endswith(DDP))
    found[first] = {FAILED: "it failed: no reason"}
    ratio = next(
        row for row in sidebyside.verdicts(documents(found)) if row[0] == f"images/s, 1 process: {OURS} / {DDP}"
    )
    assert ratio[2:] == ["too few rounds", "≥ 0.92", "not resolved"]


def test_an_interrupted_session_says_so() -> None:
    filled = sidebyside.cells(documents({}))
    assert not any(cell.samples for cell in filled.values())
    assert "interrupted" in filled[OURS, ONE].reason
    assert filled[OURS, LOADING].reason != filled[DDP, LOADING].reason


def test_the_page_has_it_at_its_top_once_and_keeps_the_other_sections() -> None:
    plain = documents(entries())
    order = [*suite.COMPARISONS, "memory"]
    page = results.updated("", {**plain["peers-speed"], "name": "memory"}, order)
    for _ in range(2):  # a second session takes the place of the first
        for document in plain.values():
            page = results.updated(page, document, order)
        page = suite.with_head(page, suite.head(plain, sidebyside.cells(plain), 3000.0))
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert headings == ["## Side by side", "## peers-loading", "## peers-recovery", "## peers-speed", "## memory"]
    assert page.startswith("# Measured")
    assert "EPYC, 2 cores, 23.5 GiB, Linux" in page.partition("## peers")[0]
    assert "(peers.png)" in page


def test_the_picture_has_a_bar_for_everyone_who_was_measured(tmp_path: Path) -> None:
    from PIL import Image

    bars.draw(sidebyside.cells(documents(entries())), tmp_path / "x.png")
    with Image.open(tmp_path / "x.png") as image:
        found = image.convert("RGB").getcolors(1 << 24)
    assert found is not None
    colours: dict[Any, int] = {colour: count for count, colour in found}
    assert colours[(0, 114, 178)] > 1000
    assert colours[(154, 165, 177)] > 4 * colours[(0, 114, 178)]
    assert (tmp_path / "x.png").stat().st_size < 150_000


def test_rounds_go_back_and_forth_and_fit_an_hour() -> None:
    plan = speed.plan(quick=False)
    half = len(plan) // 6
    first, second = [one.who for one in plan[:half]], [one.who for one in plan[half : 2 * half]]
    assert first == second[::-1]
    assert sum(one.seconds for name in suite.COMPARISONS for one in suite.COMPARISONS[name].plan(False)) < 55 * 60
    assert not is_failure({"images_per_second": 1.0})
