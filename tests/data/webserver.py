"""A small web server on loopback: files from a dictionary, with ranges and ETags, or without."""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class WebServer:
    files: dict[str, bytes] = field(default_factory=dict)
    """By path, such as "/shard.tar"."""
    ranges: bool = True
    """Whether parts of files are given."""
    etags: bool = True
    dates: bool = False
    """Whether Last-Modified is said; it is always the same."""
    moved: dict[str, str] = field(default_factory=dict)
    """Other URLs, to which these paths lead."""
    closed: set[str] = field(default_factory=set)
    """Paths that nobody may read."""
    port: int = 0
    read: list[str] = field(default_factory=list)
    """The path of every part that was given, but for those of one byte, by which clients look whether it is there."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[WebServer]:
        with ThreadingHTTPServer(("127.0.0.1", 0), _handler(self)) as server:
            server.daemon_threads = True
            self.port = server.server_address[1]
            thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()


def _handler(web: WebServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_GET(self) -> None:
            if self.path in web.moved:
                return self._answer(302, b"", {"Location": web.moved[self.path]})
            if self.path in web.closed:
                return self._answer(403, b"no", {})
            if self.path not in web.files:
                return self._answer(404, b"none", {})
            return self._file(web.files[self.path])

        def _file(self, data: bytes) -> None:
            headers = {"ETag": f'"{hashlib.md5(data).hexdigest()}"'} if web.etags else {}
            if web.dates:
                headers["Last-Modified"] = "Mon, 16 Nov 2026 12:00:00 GMT"
            match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if match is None or not web.ranges:
                return self._answer(200, data, headers)
            start, stop = int(match[1]), min(int(match[2]) + 1, len(data))
            if stop - start > 1:
                web.read.append(self.path)
            if start >= len(data):
                return self._answer(416, b"", {**headers, "Content-Range": f"bytes */{len(data)}"})
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
            return self._answer(206, data[start:stop], headers)

        def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return Handler
