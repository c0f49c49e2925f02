"""Shards on a web server. It has no listing, so what is there is told by braces or by a list of names."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.data.storage import Object, Range, faults, lists
from lockstep.data.storage.braces import expand
from lockstep.data.storage.parallel import Parallel
from lockstep.data.storage.web import WHOLE_BYTES, Answer, Web
from lockstep.errors import UserError

ADVICE = "the server wants a login, which is not known here; make the data public, or put them into S3"


class Pages:
    """What a server says about a page (ETag, or the time of change) is its tag; where it says nothing there is none."""

    def __init__(self) -> None:
        self._web = Web()
        self._parallel = Parallel()

    def find(self, url: str) -> list[Object]:
        faults.without_secrets(url)
        if url.endswith("/"):
            raise UserError(
                f"{url} is a directory, and web servers have no listing: name its files with braces, such as "
                f"{url}train-{{000..012}}.tar, or give the URL of a text file with a name in each line"
            )
        found = self._parallel.map(self._look, sorted(set(expand(url))))
        if len(found) == 1 and lists.may_be_list(url) and found[0].size <= lists.MAX_BYTES:
            urls = lists.urls_in(self.read(found[0], [(0, found[0].size)])[0], url)
            if urls is not None:
                return self._parallel.map(self._look, sorted(set(urls)))
        return found

    def read(self, found: Object, ranges: Sequence[Range]) -> list[bytes]:
        return self._parallel.read(found, ranges, lambda one: self._part(found, *one))

    def _look(self, url: str) -> Object:
        faults.without_secrets(url)
        answer = self._web.look(url, url)
        if answer.status not in (200, 206, 416):
            raise faults.refused(url, answer.status, "", ADVICE)
        if answer.size is None:
            raise UserError(f"cannot read {url}: its server does not say how large it is")
        if answer.status == 200 and answer.size > WHOLE_BYTES:
            raise UserError(f"cannot read {url}: its server gives only whole files (it ignores Range), copy them first")
        return Object(url, answer.size, _tag(answer))

    def _part(self, found: Object, start: int, stop: int) -> bytes:
        answer = self._web.part(found.url, found.url, start, stop)
        if answer.status not in (200, 206, 416):
            raise faults.refused(found.url, answer.status, "", ADVICE)
        if found.tag and _tag(answer) != found.tag:
            raise faults.changed(found)
        return answer.taken(found, start, stop)


def _tag(answer: Answer) -> str:
    return answer.headers.get("ETag") or answer.headers.get("Last-Modified") or ""
