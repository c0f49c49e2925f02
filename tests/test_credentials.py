"""Credentials are nowhere but where their owner put them: real commands that work and fail are searched for them.

What the storage itself says of every fault is searched in `tests/data/storage/test_credentials.py`.
"""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest

from tests.conftest import start
from tests.data import pictures
from tests.data.s3server import OWNER, READER, Key, Server, enter

BUCKET = "owned"
TRAIN = [
    *["imagenet-resnet50-modern", "--model", "small", "--leaves", "2", "--batch-size", "8", "--steps", "2"],
    *["--set", "data.side=32", "--set", "data.resize=[40,48]", "--hold-out", "8", "--set", "data.cache_size=0.1"],
    *["--workers", "2", "--run", "run"],
]


def log_in(home: Path, key: Key, endpoint_url: str) -> None:
    """Write what `aws configure` writes."""
    (home / ".aws").mkdir(parents=True, exist_ok=True)
    (home / ".aws" / "config").write_text(f"[default]\nregion = eu-central-1\nendpoint_url = {endpoint_url}\n")
    (home / ".aws" / "credentials").write_text(
        f"[default]\naws_access_key_id = {key.access}\naws_secret_access_key = {key.secret}\n"
    )


def searched(*arguments: str) -> tuple[int, str]:
    """Run a command; how it ended, and what it said. The list of processes is searched while it runs."""
    process = start(*arguments)
    while True:
        try:
            out, err = process.communicate(timeout=0.2)
            break
        except subprocess.TimeoutExpired:
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):  # it has ended
                    assert_clean(path.read_bytes())
    assert_clean((out + err).encode())
    return process.returncode, out + err


def assert_clean(text: bytes) -> None:
    for key in (OWNER, READER):
        for secret in (key.access, key.secret, key.secret[7:27], key.secret[-20:]):
            assert secret.encode() not in text


def test_commands_that_work_and_fail_never_show_them(
    s3: Server, workspace: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path_factory.mktemp("home")
    enter(monkeypatch, {"HOME": str(home), "AWS_EC2_METADATA_DISABLED": "true", "XDG_CACHE_HOME": str(workspace / "c")})
    for tar in pictures.write_tars(tmp_path_factory.mktemp("tars")).iterdir():
        s3.put(BUCKET, tar.name, tar.read_bytes())
    url = f"s3://{BUCKET}"
    log_in(home, OWNER, s3.endpoint_url)
    code, said = searched("train", *TRAIN, "--data", url)
    assert code == 0, said
    log_in(home, READER, s3.endpoint_url)
    code, said = searched("data", "index", f"{url}/n")
    assert code == 2
    assert "may not be read (403 AccessDenied): check the credentials" in said
    log_in(home, OWNER, "http://127.0.0.1:9")
    code, said = searched("resume", "run", "--steps", "4")
    assert code == 2
    assert "127.0.0.1:9 cannot be reached" in said
    written = [path for path in workspace.rglob("*") if path.is_file()]
    assert {"config.json", "metrics.jsonl"} <= {path.name for path in written}
    for path in written:
        assert_clean(path.read_bytes())
