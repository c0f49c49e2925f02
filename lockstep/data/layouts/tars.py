"""Tars of images: their headers alone, as the standard library reads them. Nothing is ever extracted.

Names of members are names and nothing else: none becomes a path. A tar may hold tars; each of those is scanned by
itself. Files with labels beside the images are for `lockstep.data.layouts.webdataset`.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lockstep.data.layouts import Inner, Scan, base_name, columns, encoded, is_image, shown, webdataset
from lockstep.data.layouts.rangefile import RangeFile
from lockstep.data.storage import Object, Range, Storage
from lockstep.errors import UserError

PACKED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
MAX_PADDING = 4 << 20
"""Zeros after the end of a tar; tools fill up their last record."""


@dataclass
class _Members:
    """What a tar holds, sorted by what it is for."""

    names: list[str] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    beside: dict[str, int] = field(default_factory=dict)
    """Labels that lie beside images, by the names that they have in common."""
    inner: list[Inner] = field(default_factory=list)
    passed_over: int = 0


def scan(storage: Storage, shard: Object, *, with_labels: bool, inner: Inner | None = None) -> Scan:
    """The images of a tar, or of one inside it; offsets count from the start of the shard.

    `with_labels`: whether those that lie beside images are read.
    """
    part: Range = inner.part if inner else (0, shard.size)
    title = f"{shard.url}, {shown(inner.name)}" if inner else shard.url
    file = RangeFile(storage, shard, part)
    found = _Members()
    for member in _members(file, title):
        _sort_in(member, found, file, part[0], title, with_labels=with_labels, nested=inner is not None)
    prefix = f"{inner.name}/" if inner else ""
    return columns(
        _stem(inner.name if inner else shard.url),
        [encoded(prefix + name) for name in found.names],
        found.offsets,
        found.sizes,
        webdataset.matched(found.names, found.beside, title),
        passed_over=found.passed_over,
        inner=found.inner,
    )


def _stem(name: str) -> str:
    """`n01440764` for `some/n01440764.tar`."""
    return base_name(name).removesuffix(".tar")


def _sort_in(
    member: tarfile.TarInfo, found: _Members, file: RangeFile, first: int, title: str, with_labels: bool, nested: bool
) -> None:
    name = base_name(member.name)
    if not member.isreg() or name.startswith("._"):
        found.passed_over += not member.isdir()
    elif is_image(name):
        _refuse_sparse(member, title)
        found.names.append(member.name)
        found.offsets.append(first + member.offset_data)
        found.sizes.append(member.size)
    elif name.lower().endswith(".tar"):
        if nested:
            raise UserError(f"{title} holds {shown(member.name)}, a tar in a tar in a tar: unpack the outer one")
        start = first + member.offset_data
        found.inner.append(Inner(member.name, (start, start + member.size)))
    elif name.lower().endswith(PACKED):
        raise UserError(f"{title} holds {shown(member.name)}: {NO_PACKED}")
    elif with_labels and webdataset.is_label(name):
        contents = file.contents(member.offset_data, min(member.size, webdataset.MAX_BYTES + 1))
        webdataset.take(member.name, contents, found.beside, title)
    else:
        found.passed_over += 1


NO_PACKED = "images cannot be read from the middle of a compressed tar, unpack it to a plain .tar (gunzip, for .gz)"


def _refuse_sparse(member: tarfile.TarInfo, title: str) -> None:
    stored: Any = member.sparse  # (offset, size) of each part
    whole = [(0, member.size)] if member.size else []
    if member.issparse() and [part for part in stored if part[1]] != whole:
        raise UserError(f"{title}, {shown(member.name)} is stored with holes: make this tar again without --sparse")


def _members(file: RangeFile, title: str) -> Iterator[tarfile.TarInfo]:
    """All members, each of them whole; a tar that is cut off, or damaged, is told with the last one that is not."""
    last, end = "its start", 0
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            while True:
                file.allow_headers()
                member = tar.next()
                if member is None:
                    break
                tar.members = []  # type: ignore[attr-defined]  # they are not needed again, and millions are gigabytes
                _refuse_cut_off(member, file, title)
                last = shown(member.name)
                if tar.offset <= end:  # the next header would be one that was read before, for ever
                    raise UserError(f"{title} is damaged in {last}: its size is negative; copy it again")
                end = tar.offset
                yield member
            _check_end(tar.offset, file, title, last)
    except UserError:
        raise
    except Exception as error:  # the standard library lets several kinds through where a header is damaged
        if "unexpected end" in str(error) or "truncated" in str(error) or "empty file" in str(error):
            raise UserError(f"{title} is cut off after {last}: copy it again") from None
        raise UserError(f"{title} is no tar, or is damaged after {last} ({error}): copy it again") from None


def _refuse_cut_off(member: tarfile.TarInfo, file: RangeFile, title: str) -> None:
    have = file.length - member.offset_data
    if member.isreg() and not 0 <= member.size <= have:
        raise UserError(
            f"{title} is cut off in {shown(member.name)}, which has {max(have, 0)} of {member.size} bytes: copy it "
            "again"
        )


def _check_end(offset: int, file: RangeFile, title: str, last: str) -> None:
    """The standard library takes a damaged header for the end: a tar ends with zeros, which are looked for here."""
    end = file.contents(offset, tarfile.BLOCKSIZE)
    if len(end) < tarfile.BLOCKSIZE:
        raise UserError(f"{title} is cut off after {last}: its end is missing; copy it again")
    if end.strip(b"\0"):
        raise UserError(f"{title} is damaged after {last}: no header stands at byte {offset}; copy it again")
    if file.length - offset > MAX_PADDING:
        raise UserError(
            f"{title} goes on for {file.length - offset} bytes after its end, which is after {last}: several tars in "
            "one file are not read; take them apart"
        )
