"""What is said of a worker that computes other bits."""

from __future__ import annotations

from lockstep.supervisor.probes import OwnCode, Probe, advice, describe_difference

HERE, THERE, ODD = Probe("aa", {"torch": "1"}), Probe("bb", {"torch": "2"}), Probe("bb", {"torch": "1"})
EDITED = OwnCode(changed=("me.py:net",))


def test_code_that_has_changed_is_named_before_other_facts() -> None:
    changed = "the code of me.py:net has changed since the run began"
    assert describe_difference(ODD, HERE, EDITED) == changed
    assert describe_difference(THERE, HERE, EDITED) == f"{changed}, torch is 2 there and 1 here"
    assert advice(EDITED).startswith("bring the old code back, start a new run, with --init RUN")
    assert advice(OwnCode()).startswith("train it where it began, start a new run, or")


def test_code_of_the_users_own_is_suspected_first() -> None:
    told = describe_difference(ODD, HERE, OwnCode(names=("me.py:net", "me.py:data")))
    assert "so suspect random numbers that me.py:net or me.py:data draws from a generator of its own (use " in told
    assert told.endswith(", its data files, a library or the hardware")
    assert describe_difference(ODD, HERE, OwnCode()).endswith("so suspect its data files, a library or the hardware")
    assert "suspect" not in describe_difference(THERE, HERE, OwnCode(names=("me.py:net",)))
