"""Where shards lie: files, objects in S3, pages of a web server. One protocol, one file per kind beside this one.

A storage finds objects and reads ranges of them; what the bytes mean is for `lockstep.data.index`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from lockstep.errors import UserError

Range = tuple[int, int]
"""The first byte, and the one after the last."""


@dataclass(frozen=True)
class Access:
    """How a storage is reached. Credentials are not in here: they come from where its users keep them."""

    endpoint_url: str | None = None
    """Another server that speaks S3."""
    anonymous: bool = False
    """Whether requests are not signed."""


@dataclass(frozen=True)
class Object:
    """A file, an object or a page, as it was when it was found."""

    url: str
    """An absolute path, or `s3://bucket/key`, or `https://...`: what an error names."""
    size: int
    tag: str
    """Another one when the contents have changed: the ETag, or the time of change of a file."""


class Storage(Protocol):
    """Safe to use from several threads. What cannot be read in spite of retries is a UserError that names the URL."""

    def find(self, url: str) -> list[Object]:
        """What a URL names, sorted by name: an object, all below a prefix or directory, brace ranges, a list."""
        ...

    def read(self, found: Object, ranges: Sequence[Range]) -> list[bytes]:
        """Several parts of one object, read at once; a UserError if it is no longer the object that was found."""
        ...


def open_storage(access: Access) -> Storage:
    """The storage of all URLs: each kind is opened when the first URL of it comes."""
    return _ByScheme(access)


def is_url(text: str) -> bool:
    """Whether a path is one of another host."""
    return text.startswith(("s3://", "http://", "https://"))


class _ByScheme:
    def __init__(self, access: Access) -> None:
        self._access = access
        self._kinds: dict[str, Storage] = {}
        self._lock = Lock()

    def find(self, url: str) -> list[Object]:
        return self._kind(url).find(url)

    def read(self, found: Object, ranges: Sequence[Range]) -> list[bytes]:
        return self._kind(found.url).read(found, ranges)

    def _kind(self, url: str) -> Storage:
        scheme = url.split("://")[0] if "://" in url else ""
        with self._lock:
            if scheme not in self._kinds:
                self._kinds[scheme] = _open(scheme, self._access)
            return self._kinds[scheme]


def _open(scheme: str, access: Access) -> Storage:
    if scheme == "":
        from lockstep.data.storage.local import Files

        return Files()
    if scheme == "s3":
        from lockstep.data.storage.s3 import Buckets

        return Buckets(access)
    if scheme in ("http", "https"):
        from lockstep.data.storage.http import Pages

        return Pages()
    raise UserError(f"{scheme}:// is not known: data may be files, or lie at s3://, https:// or http://")
