"""A signal that comes by two ways is one wish; Ctrl-C twice is two."""

from __future__ import annotations

from lockstep.supervisor.wishes import ECHO_SECONDS, LAUNCHER_ECHO_SECONDS, Wishes


def test_whoever_presses_ctrl_c_twice_means_it() -> None:
    wishes = Wishes(has_launcher=False)
    assert wishes.is_new("SIGINT", 10.0)
    assert wishes.is_new("SIGINT", 10.1)


def test_a_scheduler_that_sends_twice_means_one() -> None:
    wishes = Wishes(has_launcher=False)
    assert wishes.is_new("SIGTERM", 10.0)
    assert not wishes.is_new("SIGTERM", 10.0 + 0.9 * ECHO_SECONDS)
    assert not wishes.is_new("SIGTERM", 10.0 + 1.8 * ECHO_SECONDS), "an echo of the echo"
    assert wishes.is_new("SIGTERM", 10.0 + 3.0 * ECHO_SECONDS)


def test_another_signal_is_another_wish() -> None:
    wishes = Wishes(has_launcher=False)
    assert wishes.is_new("SIGUSR1", 10.0)
    assert wishes.is_new("SIGTERM", 10.1)


def test_what_a_launcher_passes_on_is_an_echo_whatever_it_is() -> None:
    wishes = Wishes(has_launcher=True)
    assert wishes.is_new("SIGINT", 1.0)
    assert not wishes.is_new("SIGTERM", 1.0 + 0.9 * LAUNCHER_ECHO_SECONDS)
    assert wishes.is_new("SIGTERM", 1.0 + 1.1 * LAUNCHER_ECHO_SECONDS)
