"""Tables from counts."""

from __future__ import annotations

from lockstep.report.confusion import matrix_table, of_counts, per_class_table, to_plain

COUNTS = ((0, 0, 8), (0, 1, 2), (1, 0, 1), (1, 1, 9), (2, 0, 3), (2, 1, 4), (2, 2, 3))
NAMES = ("cat", "dog", "hen", "yak")


def test_every_class_has_its_accuracy_and_what_it_was_taken_for() -> None:
    confusion = of_counts(COUNTS, 4, NAMES)
    cat, _, hen, yak = confusion.per_class()
    assert (cat.examples, cat.hits, cat.top1) == (10, 8, 0.8)
    assert hen.taken_for == (("dog", 4), ("cat", 3))
    assert (yak.examples, yak.top1) == (0, None)
    assert confusion.matrix() == [[8, 2, 0, 0], [1, 9, 0, 0], [3, 4, 3, 0], [0, 0, 0, 0]]


def test_tables_as_they_are_printed() -> None:
    confusion = of_counts(COUNTS, 4, NAMES)
    assert per_class_table(confusion, show_all=False).splitlines() == [
        "class  examples     top1  most often taken for",
        "cat          10   80.00%  dog (2)",
        "dog          10   90.00%  cat (1)",
        "hen          10   30.00%  dog (4), cat (3)",
        "yak           0",
    ]
    assert matrix_table(confusion).splitlines()[1:] == [
        "      0 1 2 3",
        "0 cat 8 2 . .",
        "1 dog 1 9 . .",
        "2 hen 3 4 3 .",
        "3 yak . . . .",
    ]


def test_of_many_classes_the_worst_are_shown_unless_all_are_asked_for() -> None:
    counts = tuple(
        (label, guess, 1 + label) for label in range(100) for guess in (label, 0) if (label, guess) != (0, 0)
    )
    confusion = of_counts(((0, 0, 1), *counts), 100, None)
    short, whole = (per_class_table(confusion, show_all=show_all).splitlines() for show_all in (False, True))
    assert (len(short), len(whole)) == (12, 101)
    assert short[-1] == "the 10 worst of 100 classes; --per-class shows all"
    assert short[1].split()[:3] == ["1", "4", "50.00%"]


def test_classes_without_names_are_numbers_and_a_model_may_guess_beyond_them() -> None:
    confusion = of_counts(((0, 5, 2),), 3, None)
    assert confusion.class_names == ("0", "1", "2", "3", "4", "5")
    assert to_plain(confusion)["confusion"] == [[0, 5, 2]]
    assert matrix_table(confusion).splitlines()[2] == "0 . . . . . 2"
