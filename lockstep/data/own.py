"""A data set of the user's own: `data.source` names a function that returns a training and a test set.

Each is anything with a length and an index, a torch `Dataset`, a pair of arrays, or the path of a folder of images.
What an item draws at random is keyed by (seed, epoch, index), in whichever process it is read.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lockstep import calling, generators, philox, references, runcode
from lockstep.config import Data
from lockstep.data import fingerprint
from lockstep.data.items import Form, Raw, as_array, raw, stacked, to_inputs, to_targets
from lockstep.data.order import Indices, Samples
from lockstep.data.source import Batch, Dataset, Targets
from lockstep.errors import JobError, UserError

NUM_LOOKED_AT = 8
"""Items of each set that are looked at before the start."""
GIVEN = ("path", "eval_path")
"""Keys of `data` that a function gets if it has parameters of these names."""
TITLES = {"train": "the training set", "test": "the test set"}


class Part(Protocol):
    """A training or a test set as the user's code gives it."""

    def __len__(self) -> int: ...

    def read(self, samples: Samples) -> Raw: ...


class ArrayPart:
    """A pair of arrays: nothing of the user's runs when items are read."""

    def __init__(self, inputs: Any, targets: Any, name: str) -> None:
        self._inputs, self._targets = as_array(inputs), as_array(targets)
        for array in (self._inputs, self._targets):
            if array.dtype == object or not array.ndim:
                raise UserError(f"{TITLES[name]} has items of differing shapes: make all of one shape")
        if len(self._inputs) != len(self._targets):
            raise UserError(f"{TITLES[name]} has {len(self._inputs)} inputs, but {len(self._targets)} targets")

    def __len__(self) -> int:
        return len(self._inputs)

    def read(self, samples: Samples) -> Raw:
        return self._inputs[samples.index], self._targets[samples.index]

    @property
    def targets(self) -> Targets:
        """All of them."""
        return to_targets(self._targets)

    def fingerprint(self) -> str:
        index = fingerprint.chosen(len(self), self._inputs[:1].nbytes + self._targets[:1].nbytes)
        targets = self._targets if self._targets.ndim == 1 else self._targets[index]
        return fingerprint.of_arrays(np.array(len(self)), targets, self._inputs[index])


class ItemPart:
    """Anything with a length and an index. Every item is read with generators of its own."""

    def __init__(self, items: Any, name: str, seed: int) -> None:
        self._items, self._name, self._seed = items, name, seed

    def __len__(self) -> int:
        return len(self._items)

    def read(self, samples: Samples) -> Raw:
        indices: list[int] = samples.index.tolist()
        with generators.kept():
            items = [self._item(*one) for one in zip(samples.epoch.tolist(), indices, strict=True)]
        try:
            return stacked(items, indices)
        except UserError as error:
            raise UserError(f"{TITLES[self._name]}: {error}") from None

    def draws(self, index: Indices) -> bool:
        """Whether one of these items takes random numbers, as augmentation does."""
        with generators.kept():
            return any(self._draws(one) for one in index.tolist())

    def _draws(self, index: int) -> bool:
        self._seed_for(0, index)
        seeded = generators.states()
        self._item(0, index)
        return bool(generators.differing(seeded, generators.states()))

    def _seed_for(self, epoch: int, index: int) -> None:
        generators.seed(philox.sample_seed(self._seed, self._name, epoch, index))

    def _item(self, epoch: int, index: int) -> Raw:
        self._seed_for(epoch, index)
        try:
            return raw(self._items[index])
        except UserError as error:
            raise UserError(f"item {index} of {TITLES[self._name]} {error}") from None
        except Exception:
            text = traceback.format_exc().rstrip()
            raise JobError(f"item {index} of {TITLES[self._name]} cannot be read:\n{text}") from None


@dataclass(frozen=True)
class Look:
    """Some items of a set, as they are read when the seed is 0."""

    part: Part
    items: Raw
    form: Form

    def fingerprint(self) -> str:
        """Of arrays, much; of what the user's code reads, only these items: to read more might take long."""
        if isinstance(self.part, ArrayPart):
            return self.part.fingerprint()
        return fingerprint.of_arrays(np.array(len(self.part)), *self.items)


class OwnSource:
    """Items as batches. `part` is the user's own, or stands for it in other processes."""

    def __init__(self, part: Part, name: str, look: Look, num_classes: int | None, draws_here: bool) -> None:
        self._part, self._name, self._look = part, name, look
        self._form, self._num_classes = look.form, num_classes
        self.draws_here = draws_here

    def __len__(self) -> int:
        return len(self._look.part)

    def fingerprint(self) -> str:
        return self._look.fingerprint()

    def fetch(self, samples: Samples) -> Batch:
        found = self._part.read(samples)
        inputs, targets = to_inputs(found[0]), to_targets(found[1])
        if (form := Form.of(inputs, targets)) != self._form:
            index = int(samples.index[0])
            raise UserError(
                f"item {index} of {TITLES[self._name]} is not as others are: here {form}, there {self._form}"
            )
        if self._num_classes is not None:
            check_classes(targets, samples.index, self._name, self._num_classes)
        return Batch(inputs, targets)


def check_classes(targets: Targets, index: Indices, name: str, num_classes: int) -> None:
    wrong = np.flatnonzero((targets < 0) | (targets >= num_classes))
    if len(wrong):
        raise UserError(
            f"item {index[wrong[0]]} of {TITLES[name]} is of class {targets[wrong[0]]}, but there are {num_classes} "
            "classes, from 0 on"
        )


def open_own(data: Data, seed: int) -> Dataset:
    """What the user's function returns, looked at: everything that can be wrong with it is a UserError."""
    returned, is_drawn = _called(data, seed)
    if all(isinstance(one, str | Path) or one is None for one in returned):
        return replace(_open_folders(data, seed, returned), is_drawn=is_drawn)
    parts = parts_of(data, seed, returned)
    looks = {name: _look_at(part, name) for name, part in parts_of(data, 0, returned).items()}
    form = looks["train"].form
    if "test" in looks and looks["test"].form != form:
        raise UserError(f"the two sets differ: in training {form}; in the test {looks['test'].form}")
    if "test" not in parts and not data.hold_out:
        raise UserError(f"{data.source} returned no test set: return one, or hold out samples with --hold-out")
    num_classes = _num_classes(returned[0], data.source) if form.has_classes else None
    for name, part in parts.items():
        if num_classes is not None and isinstance(part, ArrayPart):  # of items, only reading all would tell
            check_classes(part.targets, np.arange(len(part)), name, num_classes)
    readers, waits = parts, lambda: False
    if data.processes and any(isinstance(part, ItemPart) for part in parts.values()):
        from lockstep.data.processes import DataProcesses

        pool = DataProcesses(data, seed)
        readers, waits = {name: pool.part(name, len(part)) for name, part in parts.items()}, pool.is_starting
    sources = {
        name: OwnSource(readers[name], name, look, num_classes, isinstance(readers[name], ItemPart))
        for name, look in looks.items()
    }
    return Dataset(
        train=sources["train"],
        test=sources.get("test", sources["train"]),  # `hold_out` puts another one in its place
        num_classes=num_classes,
        image_shape=form.input_shape,
        holds_images=form.holds_images,
        class_names=_class_names(returned[0], num_classes),
        waits=waits,
        is_drawn=is_drawn,
        notes=_notes(data, parts["train"]),
    )


def _notes(data: Data, train: Part) -> tuple[str, ...]:
    """Samples that are held out are read as those of the training set are: what transforms them is the user's code."""
    if not data.hold_out or not isinstance(train, ItemPart) or not train.draws(_looked_at(train)):
        return ()
    return (
        "items of the training set draw random numbers, as augmentation does, and --hold-out tests on some of them: "
        "for a test without, leave it out and return a test set whose items draw none",
    )


def check(source: str) -> None:
    """Refuse a file, module or function that is not there, or needs more than it gets, without importing it."""
    calling.check_needs(source, references.signature(source), GIVEN)


def takes(source: str, name: str) -> bool:
    """Whether a function has this parameter, as far as that can be told without importing it."""
    known = references.parameters(source)
    return known is not None and name in known


def parts_of(data: Data, seed: int, returned: Sequence[Any] | None = None) -> dict[str, Part]:
    """The sets that the user's function returns, by their names."""
    found = dict(zip(TITLES, _called(data, seed)[0] if returned is None else returned, strict=True))
    return {name: _part(one, name, seed) for name, one in found.items() if one is not None}


def _called(data: Data, seed: int) -> tuple[Sequence[Any], bool]:
    """What the function returns, and whether it draws, as for a random split: then the same in every process."""
    with references.shown_from_there(data.source):
        function = references.load(data.source)
    calling.check_callable(data.source, function)
    taken = calling.signature(function)
    calling.check_needs(data.source, taken, GIVEN)
    wanted = {} if taken is None else taken.parameters
    with generators.kept(), references.shown_from_there(data.source):
        generators.seed(philox.sample_seed(seed, "function", 0, 0))
        seeded = generators.states()
        found = calling.call(data.source, function, {name: getattr(data, name) for name in GIVEN if name in wanted})
        is_drawn = bool(generators.differing(seeded, generators.states()))
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise UserError(f"{data.source} returned {type(found).__name__}, not a pair: the training set, the test set")
    return found, is_drawn


def _part(found: Any, name: str, seed: int) -> Part:
    if isinstance(found, tuple | list) and len(found) == 2 and all(hasattr(one, "__array__") for one in found):
        return ArrayPart(found[0], found[1], name)
    if isinstance(found, str | Path):
        raise UserError("where one of the two sets is a folder of images, the other must be one too, or None")
    is_iterable = any(kind.__name__ == "IterableDataset" for kind in type(found).__mro__)
    if is_iterable or not hasattr(found, "__len__") or not hasattr(found, "__getitem__"):
        raise UserError(
            f"{TITLES[name]} ({type(found).__name__}) has no length and index: iterable data cannot be shuffled and "
            "shared out exactly, so give them __len__ and __getitem__"
        )
    return ItemPart(found, name, seed)


def _look_at(part: Part, name: str) -> Look:
    """Some items, evenly over the set, so that what differs is most often found before the start."""
    try:
        size = len(part)
    except TypeError:
        size = -1
    if size < 1:
        raise UserError(f"{TITLES[name]} {'is empty' if not size else 'has no length'}: give it some items")
    index = _looked_at(part)
    try:
        inputs, targets = part.read(Samples(np.zeros_like(index), index))
        return Look(part, (inputs, targets), Form.of(to_inputs(inputs), to_targets(targets)))
    except UserError as error:
        text = str(error)
        raise UserError(text if TITLES[name] in text else f"{TITLES[name]}: {text}") from None


def _looked_at(part: Part) -> Indices:
    return fingerprint.evenly(len(part), NUM_LOOKED_AT)


def _num_classes(train: Any, source: str) -> int:
    """From a pair of arrays, or what a data set says of itself, as those of torchvision do."""
    if isinstance(train, tuple | list) and len(train) == 2:
        return int(as_array(train[1]).max()) + 1
    train = _whole(train)
    if (number := getattr(train, "num_classes", None)) is not None:
        return int(number)
    if (names := getattr(train, "classes", None)) is not None:
        return len(names)
    if (targets := getattr(train, "targets", None)) is not None:
        return int(as_array(targets).max()) + 1
    raise UserError(f"the training set of {source} does not say how many classes there are: give it `num_classes`")


def _whole(train: Any) -> Any:
    """What a part of a data set, as torch's random split makes them, is a part of: it knows the classes."""
    while not any(hasattr(train, name) for name in ("num_classes", "classes", "targets")) and hasattr(train, "dataset"):
        train = train.dataset
    return train


def _class_names(train: Any, num_classes: int | None) -> tuple[str, ...] | None:
    names = getattr(_whole(train), "classes", None)
    return tuple(map(str, names)) if names is not None and len(names) == num_classes else None


def _open_folders(data: Data, seed: int, paths: Sequence[Any]) -> Dataset:
    """A folder of images is read as `imagenet` is: a folder for each class; `framing` and `side` say what is seen."""
    from lockstep.data.imagenet import open_imagenet

    train, test = (None if path is None else _placed(str(path), data.source) for path in paths)
    if train is None:
        raise UserError(f"{data.source} returned no training set")
    return open_imagenet(replace(data, path=train, eval_path=test), seed)


def _placed(path: str, source: str) -> str:
    """A relative path starts at the function's file, unless Lockstep has written that."""
    if "://" in path:
        return path
    found = Path(path).expanduser()
    if not found.is_absolute() and runcode.is_written(Path(source.rpartition(":")[0])):
        raise UserError(
            f"{source.rpartition(':')[2]} returned the path {path}, which workers would look for elsewhere: return "
            "an absolute one, as Path(...).resolve() is"
        )
    return str(references.directory(source) / found)
