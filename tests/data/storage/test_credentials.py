"""Credentials are nowhere but where their owner put them: a program that works and fails is searched for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.data.faultproxy import Fault, FaultProxy
from tests.data.s3server import OWNER, Server, environment

PROGRAM = """
import logging, sys, traceback
from pathlib import Path
from lockstep.data.storage import Access, Object, open_storage
from lockstep.data.storage import web
from lockstep.data.storage.disk import cached

logging.basicConfig(level=logging.INFO)
web.TRIES, web.PAUSE_SECONDS, web.SILENT_SECONDS = 2, 0.01, 0.5
storage = cached(open_storage(Access()), Path("cache"), 1 << 30)
found = storage.find("s3://secrets/shard.tar")[0]
print(Path("/proc/self/cmdline").read_text())
for start in range(0, 10 << 16, 1 << 16):  # some of these are cut or refused on the way
    try:
        print(len(storage.read(found, [(start, start + 10)])[0]))
    except Exception:
        traceback.print_exc()
for url in ("s3://none/x", "s3://secrets/none", "s3://secrets/set*"):
    try:
        storage.find(url)
    except Exception:
        traceback.print_exc()
for other in (Object(found.url, found.size, "other"), Object("s3://secrets/gone", 10, "tag")):
    try:
        storage.read(other, [(0, 10)])
    except Exception:
        traceback.print_exc()
try:
    open_storage(Access(endpoint_url="http://127.0.0.1:9")).find(found.url)
except Exception:
    traceback.print_exc()
print(repr(storage), repr(vars(storage)), repr(vars(vars(storage)["_storage"])))
"""


def test_credentials_are_neither_said_nor_written(s3: Server, tmp_path: Path) -> None:
    s3.put("secrets", "shard.tar", bytes(1 << 20))
    variables = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with FaultProxy(s3.port).running() as proxy:
        for fault in (Fault(503), Fault(cut_after=3), Fault(403), Fault(400), Fault(silent_after=3)):
            proxy.inject(fault, pattern=r"(?s)shard\.tar.*Range: bytes=(?!0-0)", times=4)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=tmp_path,
            env={**variables, **environment(proxy.url), "PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            timeout=100,
        )
    assert done.returncode == 0, done.stderr
    for said in ("10\n", "may not be read", "has changed", "there is no", "cannot be reached", "cannot read"):
        assert said in done.stdout + done.stderr, said
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    everything = b"".join([done.stdout.encode(), done.stderr.encode(), "\n".join(proxy.requests).encode(), *written])
    for secret in (OWNER.access, OWNER.secret, OWNER.secret[:20], OWNER.secret[-20:]):
        assert secret.encode() not in everything
    assert b"Signature" not in everything
