"""Which class was taken for which: from exact counts to tables. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lockstep.evaluate import Counts

FEW_CLASSES = 20
"""So many are shown all; of more, the worst."""
WORST = 10


@dataclass(frozen=True)
class ClassFigures:
    """How the examples of one class fared."""

    name: str
    examples: int
    hits: int
    """Those of which it was the first guess."""
    taken_for: tuple[tuple[str, int], ...]
    """The other classes that were guessed, and how often; the most frequent first."""

    @property
    def top1(self) -> float | None:
        """None for a class without examples."""
        return self.hits / self.examples if self.examples else None


@dataclass(frozen=True)
class Confusion:
    """Counts over a test set, by class and first guess."""

    counts: Counts
    class_names: tuple[str, ...]

    def matrix(self) -> list[list[int]]:
        """Row: the class; column: the first guess. The diagonal are the hits."""
        size = len(self.class_names)
        rows = [[0] * size for _ in range(size)]
        for label, guess, count in self.counts:
            rows[label][guess] = count
        return rows

    def per_class(self) -> list[ClassFigures]:
        found: list[dict[int, int]] = [{} for _ in self.class_names]
        for label, guess, count in self.counts:
            found[label][guess] = count
        return [self._figures(label, guesses) for label, guesses in enumerate(found)]

    def _figures(self, label: int, guesses: dict[int, int]) -> ClassFigures:
        wrong = sorted(((-count, guess) for guess, count in guesses.items() if guess != label))
        taken_for = tuple((self.class_names[guess], -count) for count, guess in wrong)
        return ClassFigures(self.class_names[label], sum(guesses.values()), guesses.get(label, 0), taken_for)


def of_counts(counts: Counts, num_classes: int, class_names: tuple[str, ...] | None) -> Confusion:
    """With the names of classes, or their numbers where the data have no names; a model may guess beyond them."""
    size = max(num_classes, *(1 + max(label, guess) for label, guess, _ in counts))
    names = class_names or ()
    return Confusion(counts, (*names, *map(str, range(len(names), size))))


def per_class_table(confusion: Confusion, show_all: bool) -> str:
    """A line for each class: accuracy, and what it was taken for; of many classes only the worst, unless all are
    asked for."""
    figures = confusion.per_class()
    if not show_all and len(figures) > FEW_CLASSES:
        with_examples = [one for one in figures if one.examples]
        worst = sorted(with_examples, key=lambda one: one.top1 or 0.0)[:WORST]
        return f"{_table(worst)}\nthe {len(worst)} worst of {len(figures)} classes; --per-class shows all"
    return _table(figures)


def _table(figures: list[ClassFigures]) -> str:
    width = max([len("class"), *(len(one.name) for one in figures)])
    lines = [f"{'class':{width}}  examples     top1  most often taken for"]
    for one in figures:
        top1 = "" if one.top1 is None else f"{one.top1:.2%}"
        others = ", ".join(f"{name} ({count})" for name, count in one.taken_for[:3])
        lines.append(f"{one.name:{width}}  {one.examples:8}  {top1:>7}  {others}".rstrip())
    return "\n".join(lines)


def matrix_table(confusion: Confusion) -> str:
    """Rows are classes, columns are guesses, both numbered alike; a dot is a zero."""
    rows = confusion.matrix()
    names = enumerate(confusion.class_names)
    heads = [name if name == str(number) else f"{number} {name}" for number, name in names]
    width = max(map(len, heads))
    cell = max(len(str(value)) for value in (len(rows) - 1, *(max(row) for row in rows))) + 1
    lines = [
        "rows: the class; columns: the first guess",
        " " * width + "".join(f"{at:{cell}}" for at in range(len(rows))),
    ]
    for head, row in zip(heads, rows, strict=True):
        lines.append(f"{head:{width}}" + "".join(f"{value or '.':>{cell}}" for value in row))
    return "\n".join(lines)


def to_plain(confusion: Confusion) -> dict[str, Any]:
    """For `--json`: figures of every class, and the counts as [class, first guess, how often] by number."""
    classes = [{"name": o.name, "examples": o.examples, "hits": o.hits, "top1": o.top1} for o in confusion.per_class()]
    return {"classes": classes, "confusion": [list(entry) for entry in confusion.counts]}
