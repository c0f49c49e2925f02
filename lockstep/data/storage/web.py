"""Requests that are made again when they fail; the only file that imports urllib3.

A connection that is cut or silent, and a server that is busy, are tried again with pauses that grow, or as long as
the server asks for (Retry-After). Who is reached for the first time gets one try more, so that a wrong name or a
missing network is told at once; who has answered before is waited for.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from threading import Lock
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from lockstep.data.storage import Object, faults
from lockstep.errors import UserError

try:
    import urllib3
    from urllib3 import exceptions
except ImportError:
    raise UserError("reading from other hosts needs the extra: pip install 'lockstep-train[s3]'") from None

CONNECT_SECONDS = 5.0
SILENT_SECONDS = 15.0
"""A connection that delivers nothing for so long is given up; one that is only slow is not."""
TRIES = 8
"""After the first one."""
PAUSE_SECONDS = 0.5
"""Before the third try; it doubles with each that follows."""
MOST_SECONDS = 60
"""The longest pause, also if a server asks for a longer one."""
BUSY = (429, 500, 502, 503, 504)
CONNECTIONS = 64
"""Kept open to each host."""
WHOLE_BYTES = 1 << 20
"""A larger object is not read whole from a server that ignores ranges."""

Sign = Callable[[str, dict[str, str]], dict[str, str]]
"""The headers of a request to a URL, with those added that prove who asks."""

logging.getLogger("urllib3").setLevel(logging.ERROR)  # it warns at each try, which is no news to a user


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """How S3 calls an error."""
        match = re.search(rb"<Code>(\w{1,64})</Code>", self.body)
        return match[1].decode() if match else ""

    @property
    def size(self) -> int | None:
        """Of the whole object."""
        end = self.headers.get("Content-Range", "").rpartition("/")[2]
        text = end if self.status in (206, 416) else self.headers.get("Content-Length", "")
        return int(text) if text.isdecimal() else None

    def taken(self, found: Object, start: int, stop: int) -> bytes:
        """The part that was asked for, out of an answer that is no error."""
        if self.status == 200:
            data = self.body[start:stop]
        else:
            data = self.body if self.headers.get("Content-Range", "").startswith(f"bytes {start}-") else b""
        if len(data) != stop - start:
            raise faults.cut_short(found, start + len(data), stop)
        return data


class Web:
    """Safe to use from several threads."""

    def __init__(self, sign: Sign | None = None, certificates: str | None = None) -> None:
        self._sign = sign
        self._certificates = certificates
        self._managers: dict[str, urllib3.PoolManager] = {}
        self._lock = Lock()
        self._reached: set[str] = set()

    def look(self, url: str, name: str) -> Answer:
        """What a server says about an object, by asking for its first byte: whether it gives parts, too.

        The body is only that of an error, or of a small object that comes whole.
        """
        response = self._send(url, name, {"Range": "bytes=0-0"}, whole=False)
        try:
            answer = Answer(response.status, response.headers, b"")
            if response.status == 206:
                response.drain_conn()
                return answer
            small = response.status >= 400 or (answer.size is not None and answer.size <= WHOLE_BYTES)
            return Answer(response.status, response.headers, response.read(WHOLE_BYTES) if small else b"")
        except exceptions.HTTPError as error:
            raise faults.unreachable(name, _host(url), _why(error)) from None
        finally:
            if response.status != 206:  # there may be more, which nobody wants
                response.close()
            response.release_conn()

    def part(self, url: str, name: str, start: int, stop: int) -> Answer:
        """Some bytes, at least one; all of the object from a server that ignores ranges."""
        response = self._send(url, name, {"Range": f"bytes={start}-{stop - 1}"}, whole=True)
        return Answer(response.status, response.headers, response.data)

    def _send(self, url: str, name: str, headers: dict[str, str], *, whole: bool) -> urllib3.BaseHTTPResponse:
        host = _host(url)
        headers = {**headers, "Accept-Encoding": "identity"}
        try:
            response = self._manager(url).request(
                "GET",
                url,
                headers=self._sign(url, headers) if self._sign else headers,
                retries=_patience(TRIES if host in self._reached else 1),
                redirect=self._sign is None,
                preload_content=whole,
            )
        except exceptions.HTTPError as error:
            raise faults.unreachable(name, host, _why(error)) from None
        self._reached.add(host)
        return response

    def _manager(self, url: str) -> urllib3.PoolManager:
        """Connections are shared by all that goes the same way."""
        parts = urlsplit(url)
        proxy = "" if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme, "")
        with self._lock:
            if proxy not in self._managers:
                make = partial(urllib3.ProxyManager, proxy) if proxy else urllib3.PoolManager
                timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=SILENT_SECONDS)
                self._managers[proxy] = make(maxsize=CONNECTIONS, timeout=timeout, ca_certs=self._certificates)
            return self._managers[proxy]


def _patience(connects: int) -> urllib3.Retry:
    return urllib3.Retry(
        total=2 * TRIES,
        connect=connects,
        other=connects,  # where urllib3 counts connections that are refused, and names that are not known
        read=TRIES,
        status=TRIES,
        redirect=TRIES,
        status_forcelist=BUSY,
        raise_on_status=False,
        raise_on_redirect=False,
        backoff_factor=PAUSE_SECONDS / 2,
        backoff_jitter=PAUSE_SECONDS / 2,
        backoff_max=MOST_SECONDS,
        retry_after_max=MOST_SECONDS,
    )


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _why(error: Exception) -> str:
    """In words of our own: those of the library may hold the whole request."""
    cause = error.reason if isinstance(error, exceptions.MaxRetryError) else error
    if isinstance(cause, exceptions.LocationValueError):
        return "is not an address: check the URL"
    if isinstance(cause, exceptions.ProxyError):
        return "is reached through a proxy, which does not answer: check HTTPS_PROXY and HTTP_PROXY"
    if isinstance(cause, exceptions.NameResolutionError):
        return "is not a known host: check its spelling and the network"
    if isinstance(cause, exceptions.NewConnectionError):
        system = cause.__cause__
        said = system.strerror if isinstance(system, OSError) and system.strerror else "no connection"
        return f"cannot be reached ({said}): check the address and the network"
    if isinstance(cause, exceptions.ConnectTimeoutError):
        return f"accepts no connection within {CONNECT_SECONDS:g} s: check the address and the network"
    if isinstance(cause, exceptions.ReadTimeoutError):
        return f"sent nothing for {SILENT_SECONDS:g} s, time and again"
    if isinstance(cause, exceptions.SSLError):
        return "has no certificate that can be verified, or does not speak TLS: check the URL"
    if isinstance(cause, exceptions.ProtocolError | exceptions.IncompleteRead):
        return "cut the connection, time and again"
    return "does not answer as a web server does"
