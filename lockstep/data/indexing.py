"""Makes the index of a set of shards, keeps it in the cache, and makes it again when anything that it tells of changed.

The name of the entry is a hash of everything that the index depends on: the URL, size and tag of every shard and of the
label file, and what is wanted of them. Processes that want the same index at once wait for the first.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from lockstep.data import cache, indexfile, paths, scanfile
from lockstep.data.index import Index
from lockstep.data.layouts import (
    UNKNOWN,
    Group,
    Inner,
    Scan,
    base_name,
    counted,
    folders,
    joined,
    nothing,
    shown,
    tars,
    tfrecord,
)
from lockstep.data.layouts.labels import Labels, find_labels, read_labels
from lockstep.data.listing import TEST, Listing, Wanted, find, stem
from lockstep.data.storage import Object, Storage, is_url
from lockstep.errors import UserError

Progress = Callable[[int, int], None]
"""Called with the shards that have been read, and all of them; a tar of tars becomes more when it has been opened."""

PREFIX = "index-"
"""Of the names of entries in the cache."""
ATTEMPTS = 3
THREADS = 16
REMOTE_THREADS = 32

SYNSET = re.compile(r"n\d{8}")

T = TypeVar("T")


def open_index(wanted: Wanted, storage: Storage, progress: Progress | None = None) -> Index:
    """The index, from the cache, or made now; whatever is wrong with the shards is a UserError that names one."""
    listing = find(wanted, storage)
    label_file = find_labels(wanted.label_path, storage) if wanted.label_path else None
    if label_file and listing.kind == "tfrecord":
        raise UserError("TFRecords hold their labels: leave out --labels")
    name = _name(wanted, listing, label_file)
    if not wanted.needs_labels and cache.is_there(
        with_labels := _name(replace(wanted, needs_labels=True), listing, label_file)
    ):
        name = with_labels

    def make() -> Index:
        labels = read_labels(label_file, storage) if label_file else None
        return build(wanted, listing, labels, storage, progress)

    for _ in range(ATTEMPTS):
        directory = cache.entry(name, lambda target: indexfile.write(make(), target))
        try:
            return indexfile.read(directory)
        except indexfile.Damaged as damaged:
            problem = damaged
            cache.discard(directory)
    raise UserError(f"the index in {directory} is damaged as soon as it is written ({problem}): look at the disk")


def forget_folders(path: str) -> None:
    """Remove every index of folders of this host below a path, whatever was wanted of them: their tags do not tell of a
    file that was written over."""
    pieces = [piece for piece in paths.split(path) if not is_url(piece)]
    names = {name for piece in pieces for name in (os.path.abspath(piece), os.path.realpath(piece))}  # noqa: PTH100
    tops = tuple(f"{name.rstrip('/')}/" for name in names)
    for directory in cache.entries(PREFIX):
        if any(url.endswith("/") and url.startswith(tops) for url in indexfile.shards_of(directory)):
            cache.discard(directory)


def _name(wanted: Wanted, listing: Listing, label_file: Object | None) -> str:
    described = [[one.url, one.size, one.tag] for one in (*listing.shards, *([label_file] if label_file else []))]
    asked = [wanted.key_prefix, wanted.classes, wanted.needs_labels, label_file is not None]
    facts = [indexfile.FORMAT_VERSION, listing.kind, listing.classes, asked, described]
    return f"{PREFIX}{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:20]}"


def build(
    wanted: Wanted,
    listing: Listing,
    labels: Labels | None,
    storage: Storage,
    progress: Progress | None = None,
    problems: list[str] | None = None,
) -> Index:
    """Read the shards that are wanted, in parallel, and put together what they hold.

    Where no shard has a name with the prefix, tars inside them may have one. What is wrong with a shard is raised, or
    put into `problems`, and the others are taken.
    """
    work = _Work(listing, labels, storage, progress or (lambda done, total: None), problems)
    chosen = listing.chosen(wanted.key_prefix)
    if not chosen and not work.holds_tars():
        raise _no_such_prefix(wanted, [stem(one) for one in listing.shards])
    shards = chosen or listing.shards
    scans = work.scan(shards)
    inner = [_inner_stem(one) for scan in scans for one in scan.inner]
    names = inner or [stem(one) for one in listing.shards]
    if inner:
        scans = work.scan_inside(shards, scans, "" if chosen else wanted.key_prefix, keep_own=bool(chosen))
    taken = sum(bool(group.samples) for scan in scans for group in scan.groups)
    if not taken and wanted.key_prefix and inner:
        raise _no_such_prefix(wanted, names)
    if not taken:
        raise UserError(f"{wanted.path} holds {counted(len(shards), 'shard')} and no images in them: give some that do")
    index = _assemble(wanted, listing, shards, scans, labels, names)
    return replace(index, num_taken=taken if inner else len(shards), num_found=len(names))


def _no_such_prefix(wanted: Wanted, names: Sequence[str]) -> UserError:
    return UserError(
        f"no shard of {wanted.path} has a name that begins with {wanted.key_prefix!r}: there are {len(names)}, from "
        f"{shown(min(names))} to {shown(max(names))}; give another --key-prefix"
    )


@dataclass(frozen=True)
class _Work:
    """Shards are scanned by threads, whose results come in order: the first problem is the one that is told."""

    listing: Listing
    labels: Labels | None
    storage: Storage
    progress: Progress
    problems: list[str] | None

    def holds_tars(self) -> bool:
        """Whether shards are tars of tars, by the first of them: nobody reads a thousand in vain."""
        shards = self.listing.shards
        if self.listing.kind != "tar" or any(SYNSET.fullmatch(stem(one)) for one in shards):
            return False
        return bool(self.scan(shards[:1])[0].inner)

    def scan(self, shards: Sequence[Object]) -> list[Scan]:
        return self._all(self._one, shards)

    def _one(self, shard: Object) -> Scan:
        if self.listing.kind == "folder":
            without = TEST if shard.url in self.listing.tops else ()
            return self._labelled(folders.scan(shard, self.listing.listed.get(shard.url), without), shard.url)
        if self.listing.kind == "tfrecord":
            return scanfile.kept(shard, ["tfrecord"], lambda: tfrecord.scan(self.storage, shard))
        return self._tar(shard, None)

    def _tar(self, shard: Object, inner: Inner | None) -> Scan:
        """Tars of this host are scanned as fast as what was kept of them is read."""
        with_labels = self.labels is None

        def scan() -> Scan:
            return tars.scan(self.storage, shard, with_labels=with_labels, inner=inner)

        part = inner.part if inner else ()
        found = scanfile.kept(shard, ["tar", with_labels, *part], scan) if is_url(shard.url) else scan()
        return self._labelled(found, f"{shard.url}, {shown(inner.name)}" if inner else shard.url)

    def _labelled(self, scan: Scan, title: str) -> Scan:
        return self.labels.put_on(scan, title) if self.labels else scan

    def scan_inside(self, shards: Sequence[Object], scans: Sequence[Scan], prefix: str, keep_own: bool) -> list[Scan]:
        """The tars inside tars whose names begin so, after the images that lie beside them."""
        places = [(number, inner) for number, scan in enumerate(scans) for inner in scan.inner]
        wanted = [(number, inner) for number, inner in places if _inner_stem(inner).startswith(prefix)]
        parts = [[scan if keep_own else replace(nothing(), passed_over=len(scan) + scan.passed_over)] for scan in scans]
        done = self._all(lambda place: self._tar(shards[place[0]], place[1]), wanted)
        for (number, _), scan in zip(wanted, done, strict=True):
            parts[number].append(scan)
        return [joined(part) for part in parts]

    def _all(self, work: Callable[[T], Scan], items: Sequence[T]) -> list[Scan]:
        def guarded(item: T) -> Scan:
            try:
                return work(item)
            except UserError as error:
                if self.problems is None:
                    raise
                self.problems.append(str(error))
                return nothing()

        remote = is_url(self.listing.shards[0].url)
        done: list[Scan] = []
        with ThreadPoolExecutor(REMOTE_THREADS if remote else THREADS, thread_name_prefix="index") as pool:
            try:
                for result in pool.map(guarded, items):
                    done.append(result)
                    self.progress(len(done), len(items))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return done


def _inner_stem(inner: Inner) -> str:
    return base_name(inner.name).removesuffix(".tar")


def _assemble(
    wanted: Wanted,
    listing: Listing,
    shards: Sequence[Object],
    scans: Sequence[Scan],
    labels: Labels | None,
    names: Sequence[str],
) -> Index:
    """One table of all samples; where nothing tells their labels, the rank of their group's name among all names."""
    whole = joined(scans)
    label, classes = whole.label, None
    is_told = listing.kind != "tar" or all(SYNSET.fullmatch(group.name) for group in whole.groups if group.samples)
    if not wanted.needs_labels and (listing.is_flat or not is_told):
        label = np.maximum(label, 0)
    elif (label == UNKNOWN).any():
        classes = wanted.classes or listing.classes or tuple(sorted(set(names)))
        label = np.where(label == UNKNOWN, _ranks(whole.groups, classes, listing, wanted), label).astype(np.int32)
    num_classes = len(classes) if classes else labels.num_classes if labels else int(label.max()) + 1
    return Index(
        shards=tuple(shards),
        shard=np.repeat(np.arange(len(scans), dtype=np.int32), [len(scan) for scan in scans]),
        offset=whole.offset,
        size=whole.size,
        label=label,
        name_ends=whole.name_ends,
        names=whole.names,
        groups=tuple(group.samples for group in whole.groups if group.samples),
        num_classes=num_classes,
        class_names=classes,
        passed_over=listing.passed_over + whole.passed_over,
    )


def _ranks(
    groups: Sequence[Group], classes: tuple[str, ...], listing: Listing, wanted: Wanted
) -> npt.NDArray[np.int64]:
    """The class of each sample, by the name of its group."""
    number = {name: rank for rank, name in enumerate(classes)}
    used = [group for group in groups if group.samples]
    for group in used:
        if listing.kind == "tar" and not SYNSET.fullmatch(group.name):
            raise UserError(
                f"{wanted.path} does not say what its images show: {shown(group.name)} is no synset such as n01440764, "
                "and no .cls or .json lies beside them; give a file with lines `name label`, with --labels"
            )
        if listing.is_flat:
            raise UserError(
                f"{wanted.path} has no folder for each class: give a file with lines `name label`, with --labels"
            )
        if group.name not in number:
            raise UserError(
                f"{shown(group.name)} in {wanted.path} is no class of the training set, which has {len(classes)}, from "
                f"{classes[0]} to {classes[-1]}: remove it, or give the training set that goes with it"
            )
    return np.repeat([number[group.name] for group in used], [group.samples for group in used])
