"""What a run is given: the course of it over sessions, and what of it two runs have in common."""

from __future__ import annotations

from dataclasses import replace

from lockstep import inputs
from lockstep.config import Recipe, Script
from lockstep.inputs import Inputs

FIRST = Inputs(0, {"train": "a", "test": "b"}, False, {"model": "c"})
EDITED = Inputs(8, {"train": "a", "test": "b"}, False, {"model": "d"})


def test_a_session_with_the_same_adds_nothing_and_one_with_something_else_adds_an_entry() -> None:
    assert inputs.followed((), FIRST) == (FIRST,)
    assert inputs.followed((FIRST,), replace(FIRST, step=8)) == (FIRST,)
    assert inputs.followed((FIRST,), EDITED) == (FIRST, EDITED)


def test_what_is_done_again_is_recorded_again() -> None:
    assert inputs.followed((FIRST, EDITED), replace(FIRST, step=8)) == (FIRST,)
    assert inputs.followed((FIRST, EDITED), replace(EDITED, step=0)) == (replace(EDITED, step=0),)


def test_a_state_was_computed_from_what_came_before_its_step() -> None:
    other = Inputs(8, {"train": "x"})
    assert inputs.behind((FIRST, other), 8) == FIRST.data
    assert inputs.behind((FIRST, other), 9) == other.data
    assert inputs.behind((FIRST,), 0) == FIRST.data
    assert inputs.behind((other,), 8) == other.data, "nothing earlier is known"
    assert inputs.behind((other,), 7) == inputs.behind((), 0) == {}


def test_the_course_of_one_thing() -> None:
    assert inputs.course((FIRST, EDITED), "code", "model") == ((0, "c"), (8, "d"))
    assert inputs.course((FIRST, EDITED), "data", "train") == ((0, "a"),)
    assert inputs.course((FIRST,), "code", "loss") is None
    assert inputs.course((), "data", "train") is None
    assert inputs.course((EDITED,), "data", "train") is None, "nobody knows what it began with"


def test_what_is_written_is_read_and_what_is_none_is_passed_over() -> None:
    assert inputs.read({"inputs": inputs.to_plain((FIRST, EDITED))}) == (FIRST, EDITED)
    others: list[object] = [None, {}, [], {"inputs": 3}, {"inputs": [{"step": "x"}]}]
    for other in others:
        assert inputs.read(other) == ()


def test_samples_that_the_seed_chose_do_not_tell_runs_apart_and_code_does() -> None:
    drawn = replace(FIRST, is_drawn=True)
    assert inputs.comparable((drawn,)) == inputs.comparable((replace(drawn, data={"train": "x"}),))
    assert inputs.comparable((drawn,)) != inputs.comparable((replace(drawn, code={"model": "x"}),))
    assert inputs.comparable((FIRST,)) != inputs.comparable((replace(FIRST, data={"train": "x"}),))


def test_own_code_is_what_the_recipe_names_and_nothing_of_a_script() -> None:
    recipe = Recipe(name="", loss="/x/own.py:loss", metric="package.module:metric")
    assert inputs.own_code(recipe) == {"loss": "/x/own.py:loss", "metric": "package.module:metric"}
    assert inputs.own_code(replace(recipe, script=Script(path="x.py"))) == {}


def test_code_has_changed_if_it_is_not_that_of_the_beginning() -> None:
    assert inputs.changed((FIRST, EDITED)) == ["model"]
    assert inputs.changed((FIRST,)) == []
    assert inputs.changed((FIRST, EDITED, replace(FIRST, step=12))) == [], "it was brought back"
    assert inputs.changed((EDITED,)) == [], "an older version had begun it"
