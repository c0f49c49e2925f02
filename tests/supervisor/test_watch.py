"""Who counts as stuck: neither a slow worker, nor anyone while the supervisor itself stood still."""

from __future__ import annotations

from lockstep.supervisor.watch import CONNECT_SECONDS, Watch


def stuck_after(watch: Watch, seconds: float, beat: tuple[int, int | None, str] | None = None) -> dict[int, str]:
    """Look at the clock every second, with a heartbeat before each look if one is given."""
    for second in range(int(seconds) + 1):
        if beat is not None:
            watch.heard(0, beat, 0.1, float(second))
        if found := watch.stuck([0], float(second)):
            return found
    return {}


def test_a_worker_stuck_in_a_leaf_of_an_evaluation_is_found_and_one_that_waits_is_not() -> None:
    assert "made no progress" in stuck_after(Watch(10.0), 20, (5, 3, "evaluate"))[0]
    assert "made no progress" in stuck_after(Watch(10.0), 20, (5, 3, "verify"))[0]
    assert stuck_after(Watch(10.0), 200, (5, None, "evaluate")) == {}
    assert stuck_after(Watch(10.0), 200, (5, None, "exchange")) == {}
    assert stuck_after(Watch(10.0), 200, (5, None, "checkpoint")) == {}
    assert stuck_after(Watch(10.0), 200, (5, 3, "waiting")) == {}  # for a server that sends its samples


def test_a_process_that_never_connects_is_given_up() -> None:
    assert stuck_after(Watch(10.0), CONNECT_SECONDS - 1) == {}
    assert "did not connect" in stuck_after(Watch(10.0), CONNECT_SECONDS + 1)[0]


def test_nobody_is_expelled_because_the_supervisor_stood_still() -> None:
    """Ctrl-Z and fg: heartbeats wait in the sockets, and are read after the clock was looked at."""
    watch = Watch(10.0)
    watch.heard(0, (3, 1, "forward"), 0.1, 0.0)
    assert watch.stuck([0], 0.5) == {}
    assert watch.stuck([0], 3600.0) == {}
    assert watch.stuck([0], 3601.0) == {}
    for second in range(3602, 3620):
        if found := watch.stuck([0], float(second)):
            break
    assert "sent no heartbeat for 1" in found[0]


def test_the_one_reported_most_is_to_blame_and_on_a_tie_the_newest() -> None:
    watch = Watch(10.0)
    for worker, peer in ((0, 1), (0, 2), (1, 0), (2, 0)):
        watch.report(worker, peer, 0.0)
    assert watch.most_reported([0, 1, 2]) == 0
    watch.clear_reports()
    watch.report(0, 1, 0.0)
    watch.report(1, 0, 0.0)
    assert watch.most_reported([0, 1, 2]) == 1
    watch.clear_reports()
    watch.report(0, None, 0.0)
    assert watch.most_reported([0, 1, 2]) is None
