"""Which shards a path means, and how they are laid out: told by names alone, before any of them is read.

From the top down the first image or shard decides. Tars and TFRecords are shards; where images are files of their own,
the folder of a class is one.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NoReturn

from lockstep.data import paths
from lockstep.data.layouts import IMAGE_SUFFIXES, base_name, folders, is_image
from lockstep.data.layouts.folders import Listed
from lockstep.data.layouts.tars import NO_PACKED, PACKED
from lockstep.data.layouts.tfrecord import is_tfrecord
from lockstep.data.storage import Object, Storage, is_url
from lockstep.errors import UserError

Kind = Literal["tar", "tfrecord", "folder"]

TRAIN = ("train", "training")
TEST = ("val", "validation", "valid", "test")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be indexed."""

    path: str
    """URLs and paths with commas between, as --data takes them."""
    label_path: str | None = None
    """A file with lines `name label`; None: shards, folders or what lies beside the images say it."""
    key_prefix: str = ""
    """Of many shards, only those whose names begin so; labels stay as they would be without."""
    split: Literal["train", "test"] = "train"
    """Which part, where names tell training and test apart (`train/` and `val/`, `validation-00000-of-00128`)."""
    beside: bool = False
    """Whether the path is that of the training set, and a test set must lie beside it."""
    classes: tuple[str, ...] | None = None
    """The classes of the training set, so that those of a test set have the same numbers."""
    needs_labels: bool = True
    """Whether images of which nothing says what they show are an error; if not, they are of class 0."""


@dataclass(frozen=True)
class Listing:
    kind: Kind
    shards: tuple[Object, ...]
    """All of the part that is wanted, whatever the prefix."""
    listed: dict[str, Listed] = field(default_factory=dict)
    """The files of each folder, where they had to be listed anyhow."""
    classes: tuple[str, ...] | None = None
    """The folders of the training set, where a test set lies beside it."""
    passed_over: int = 0
    """Files that are neither shards nor images."""
    is_flat: bool = False
    """Whether images lie side by side, without a folder for each class."""
    tops: frozenset[str] = frozenset()
    """Folders of this host with images side by side, whose folders `TEST` are no part of them."""

    def chosen(self, prefix: str) -> tuple[Object, ...]:
        return tuple(one for one in self.shards if stem(one).startswith(prefix))


def stem(shard: Object) -> str:
    """The name of a shard or folder without what comes before and after: what prefixes and ranks go by."""
    return base_name(shard.url.rstrip("/")).removesuffix(".tar")


def find(wanted: Wanted, storage: Storage) -> Listing:
    """List everything; a UserError says what is missing."""
    found = [_find_piece(piece, wanted, storage) for piece in paths.split(wanted.path)]
    kinds = {one.kind for one in found}
    if len(kinds) > 1:
        raise UserError(f"{wanted.path} holds {' and '.join(sorted(kinds))} layouts: give them one at a time")
    shards = {shard.url: shard for one in found for shard in one.shards}
    for url in shards:
        if not url.isprintable():
            raise UserError(f"{url!a} has a name that cannot be shown: rename it")
    return Listing(
        kind=found[0].kind,
        shards=tuple(shards.values()),
        listed={url: files for one in found for url, files in one.listed.items()},
        classes=found[0].classes,
        passed_over=sum(one.passed_over for one in found),
        is_flat=any(one.is_flat for one in found),
        tops=frozenset().union(*(one.tops for one in found)),
    )


def _find_piece(piece: str, wanted: Wanted, storage: Storage) -> Listing:
    """A directory of this host is not listed file by file if it holds folders of images: there may be millions."""
    where = piece if is_url(piece) else os.path.abspath(piece)  # noqa: PTH100
    if is_url(piece) or not Path(where).is_dir():
        return _sort(storage.find(where), where, wanted)
    train, test = _subdirectory(where, TRAIN), _subdirectory(where, TEST)
    if wanted.split == "train":
        below = train or where
    else:
        below = test or (_refuse_part(wanted) if train else where)
    if folders.first_kind(below, is_shard, TEST) != "image":
        return _sort(storage.find(below), below, wanted, is_part=below != where)
    if below == where and wanted.beside:
        _refuse_part(wanted)
    without = TEST if below == where else ()
    inside = folders.class_names(below, without)
    classes = folders.class_names(train) if train and below == test else None
    shards = tuple(folders.find_local(below, inside, without))
    tops = frozenset(one.url for one in shards) if without and not inside else frozenset[str]()
    return Listing("folder", shards, classes=classes, is_flat=not inside, tops=tops)


def _subdirectory(where: str, names: Sequence[str]) -> str | None:
    name = _first(names, [one for one in names if (Path(where) / one).is_dir()])
    return None if name is None else str(Path(where) / name)


def _sort(found: Sequence[Object], where: str, wanted: Wanted, is_part: bool = False) -> Listing:
    """What a listing holds, by names; the part that is wanted alone, unless it is that already."""
    start = where.rstrip("/") + "/"
    named = [(one.url.removeprefix(start) if one.url.startswith(start) else base_name(one.url), one) for one in found]
    part = named if is_part else _part(named, wanted)
    for kind, is_kind in KINDS.items():
        shards = tuple(one for name, one in part if is_kind(base_name(name)))
        if shards:
            return Listing(kind, shards, passed_over=len(part) - len(shards))
    images = [(name, one) for name, one in part if _is_image(name)]
    if not images:
        raise _nothing(found, where)
    listed = _in_folders(images)
    classes = _classes_beside(named) if wanted.split == "test" else None
    shards = tuple(_folder(url, files) for url, files in listed.items())
    plain = {url: [(name, size) for name, size, _ in files] for url, files in listed.items()}
    passed_over = len(part) - sum(len(files) for files in plain.values())
    is_flat = not any("/" in name for name, _ in images)
    return Listing("folder", shards, plain, classes, passed_over, is_flat)


def _in_folders(images: Iterable[tuple[str, Object]]) -> dict[str, list[tuple[str, int, str]]]:
    """Name, size and tag of the images in each folder, sorted by name. Images beside folders are passed over."""
    listed: dict[str, list[tuple[str, int, str]]] = {}
    beside: dict[str, list[tuple[str, int, str]]] = {}
    for name, one in images:
        inside = name.split("/", 1)[-1]
        target = listed if "/" in name else beside
        target.setdefault(one.url.removesuffix(inside), []).append((inside, one.size, one.tag))
    found = listed or beside
    return {url: sorted(found[url]) for url in sorted(found, key=lambda url: base_name(url.rstrip("/")))}


def _is_image(name: str) -> bool:
    """By the rule for folders of this host."""
    return is_image(name) and not folders.is_hidden(name.rpartition("/")[0])


def _folder(url: str, files: list[tuple[str, int, str]]) -> Object:
    tag = hashlib.sha256(repr(files).encode("utf-8", "surrogateescape")).hexdigest()[:20]
    return Object(url, sum(size for _, size, _ in files), tag)


def _part(named: list[tuple[str, Object]], wanted: Wanted) -> list[tuple[str, Object]]:
    """Training or test, by the first folder of a name, or by the words in a shard's; where none says it, everything.

    Names then begin after that folder.
    """
    is_train = wanted.split == "train"
    inside = {name.split("/")[0] for name, _ in named if "/" in name}
    if not inside.isdisjoint((*TRAIN, *TEST)):
        folder = _first(TRAIN if is_train else TEST, inside)
        below = [(name.split("/", 1)[1], one) for name, one in named if "/" in name and name.split("/")[0] == folder]
        beside = [(name, one) for name, one in named if name.split("/")[0] not in TEST] if is_train else []
        return below or beside or _refuse_part(wanted)
    test = [(name, one) for name, one in named if _is_test_name(name)]
    if test and not is_train:
        return test
    if wanted.beside:
        _refuse_part(wanted)
    return [pair for pair in named if not is_train or not _is_test_name(pair[0])] or named


def _first(names: Iterable[str], inside: Collection[str]) -> str | None:
    """Of several folders that would do, one alone is taken, by the same order wherever data lie."""
    return next((name for name in names if name in inside), None)


def _is_test_name(name: str) -> bool:
    base = base_name(name).lower()
    return is_shard(base) and not set(TEST).isdisjoint(re.split(r"[^a-z]+", base))


def _classes_beside(named: list[tuple[str, Object]]) -> tuple[str, ...] | None:
    parts = [name.split("/") for name, _ in named if _is_image(name)]
    folder = _first(TRAIN, {part[0] for part in parts})
    return tuple(sorted({part[1] for part in parts if len(part) > 2 and part[0] == folder})) or None


def is_tar(base: str) -> bool:
    return base.lower().endswith(".tar") and not base.startswith("._")


def is_shard(base: str) -> bool:
    return is_tar(base) or is_tfrecord(base)


KINDS: dict[Kind, Callable[[str], bool]] = {"tfrecord": is_tfrecord, "tar": is_tar}


def _refuse_part(wanted: Wanted) -> NoReturn:
    if wanted.split == "train":
        raise UserError(f"{wanted.path} holds a validation set and no training set: give the directory of one")
    raise UserError(
        f"{wanted.path} holds no validation set (a folder val/, or shards called so): give one with --eval-data, or "
        "keep some of the training set with --hold-out N"
    )


def _nothing(found: Sequence[Object], where: str) -> UserError:
    packed = [one.url for one in found if one.url.lower().endswith(PACKED)]
    if packed:
        return UserError(f"{packed[0]}: {NO_PACKED}")
    endings = ", ".join(IMAGE_SUFFIXES)
    return UserError(
        f"{where} holds neither tars nor TFRecords nor images ({endings}): give the directory or the URL of some"
    )
