"""Shards in S3: a real server that checks signatures, and a proxy before it where something is to go wrong."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from lockstep.data.storage import Access, Object, Storage, open_storage, web
from lockstep.data.storage import s3 as s3_storage
from lockstep.errors import UserError
from tests.conftest import REPOSITORY
from tests.data.faultproxy import Fault, FaultProxy, certificates
from tests.data.s3server import ANYONE, OWNER, READABLE, READER, Key, Server, enter, environment

DATA = random.Random(3).randbytes(1_000_000)
BUCKET = "shards"
SHARD = f"s3://{BUCKET}/shard.tar"


@pytest.fixture(scope="module")
def filled(s3: Server) -> Server:
    s3.put(BUCKET, "shard.tar", DATA)
    for name in ("n01/1.tar", "n01/2.tar", "n015.tar", "n016.tar", "n02/3.tar", "train/n015.tar", "train_2/x.tar"):
        s3.put(BUCKET, f"set/{name}", name.encode())
    s3.put(ANYONE, "a.tar", b"for all")
    s3.put(READABLE, "b.tar", b"for some")
    return s3


@pytest.fixture
def storage(filled: Server, owner: Server) -> Storage:
    return open_storage(Access())


@pytest.fixture
def proxy(filled: Server, owner: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """The endpoint, with little patience for what is silent."""
    monkeypatch.setattr(web, "SILENT_SECONDS", 0.5)
    monkeypatch.setattr(web, "PAUSE_SECONDS", 0.02)
    with FaultProxy(filled.port).running() as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.url)
        yield running


def names(storage: Storage, url: str) -> list[str]:
    return [one.url.removeprefix(f"s3://{BUCKET}/set/") for one in storage.find(f"s3://{BUCKET}/set/{url}")]


def test_what_a_url_names(storage: Storage) -> None:
    """F16: an object, what lies below a name, what begins with a name, braces, a pattern."""
    everything = ["n01/1.tar", "n01/2.tar", "n015.tar", "n016.tar", "n02/3.tar", "train/n015.tar", "train_2/x.tar"]
    assert names(storage, "n015.tar") == ["n015.tar"]
    assert names(storage, "") == everything
    assert names(storage, "n01") == names(storage, "n01/") == everything[:2]
    assert names(storage, "train") == ["train/n015.tar"]
    assert names(storage, "n0") == everything[:5]
    assert names(storage, "n{016,015}.tar") == ["n015.tar", "n016.tar"]
    assert names(storage, "n0{1..2}") == ["n01/1.tar", "n01/2.tar", "n02/3.tar"]
    assert names(storage, "n*.tar") == ["n015.tar", "n016.tar"]
    assert names(storage, "*/?.tar") == ["n01/1.tar", "n01/2.tar", "n02/3.tar", "train_2/x.tar"]


def test_ranges_of_an_object(storage: Storage) -> None:
    """F16."""
    found = storage.find(SHARD)[0]
    assert (found.url, found.size) == (SHARD, len(DATA))
    assert found == next(one for one in storage.find(f"s3://{BUCKET}") if one.url == SHARD)
    ranges = [(0, 1), (5, 5), (len(DATA) - 1, len(DATA)), (17, 100_017), (0, len(DATA))]
    ranges += [(place, place + 1000) for place in range(0, 900_000, 10_000)]
    assert storage.read(found, ranges) == [DATA[start:stop] for start, stop in ranges]
    assert storage.read(Object(SHARD, len(DATA), ""), [(3, 9)]) == [DATA[3:9]]
    with pytest.raises(UserError, match="ends at byte 1000000, before byte 1000001"):
        storage.read(found, [(0, len(DATA) + 1)])


@pytest.mark.parametrize("key", ["a b.tar", "a+b&c=d.tar", "50%25.tar", "ümläut/日本.tar", "a#b?c.tar", "x~y'(z)!.tar"])
def test_strange_keys(filled: Server, storage: Storage, key: str) -> None:
    filled.put(BUCKET, f"strange/{key}", key.encode())
    for url in (f"s3://{BUCKET}/strange/{key}", f"s3://{BUCKET}/strange/{key[:2]}"):
        found = next(one for one in storage.find(url) if one.url.endswith(key))
        assert storage.read(found, [(0, found.size)]) == [key.encode()]


def test_an_object_that_changed_is_not_read(filled: Server, storage: Storage) -> None:
    url = f"s3://{BUCKET}/changing.tar"
    filled.put(BUCKET, "changing.tar", DATA[:1000])
    found = storage.find(url)[0]
    for later in (DATA[1000:2000], b"short"):
        filled.put(BUCKET, "changing.tar", later)
        with pytest.raises(UserError, match=f"{url} has changed since it was indexed"):
            storage.read(found, [(500, 600)])
    with pytest.raises(UserError, match=f"{url} ends at byte 5, before byte 600"):
        storage.read(Object(url, 1000, ""), [(500, 600)])
    filled.client().delete_object(Bucket=BUCKET, Key="changing.tar")
    with pytest.raises(UserError, match=f"there is no {url}"):
        storage.read(found, [(500, 600)])


def test_what_is_not_there(storage: Storage) -> None:
    with pytest.raises(UserError, match=f"there is no s3://{BUCKET}/none.tar, and nothing that begins so"):
        storage.find(f"s3://{BUCKET}/none.tar")
    with pytest.raises(UserError, match=r"there is no bucket s3://no-such-bucket at http://127.0.0.1"):
        storage.find("s3://no-such-bucket/x.tar")
    for url in ("s3://", "s3:///key", f"s3://{OWNER.access}:{OWNER.secret}@bucket/key"):
        with pytest.raises(UserError, match="a URL in S3 is s3://BUCKET/KEY") as caught:
            storage.find(url)
        assert OWNER.access not in str(caught.value)


def test_who_may_not_read_is_told_what_to_do(filled: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {
        "AccessDenied": READER,
        "InvalidAccessKeyId": Key("AKIANOBODYNOBODYNOBO", "x" * 40),
        "SignatureDoesNotMatch": Key(OWNER.access, "x" * 40),
    }
    for code, key in cases.items():
        enter(monkeypatch, environment(filled.endpoint_url, key))
        for url in (SHARD, f"s3://{BUCKET}/set/"):
            with pytest.raises(UserError, match=rf"{url} may not be read \(403 {code}\): check the credentials"):
                open_storage(Access()).find(url)
        with pytest.raises(UserError, match=rf"may not be read \(403 {code}\): check the credentials"):
            open_storage(Access()).read(Object(SHARD, len(DATA), "tag"), [(0, 5)])
    enter(monkeypatch, environment(filled.endpoint_url, READER))
    assert open_storage(Access()).find(f"s3://{READABLE}")[0].url == f"s3://{READABLE}/b.tar"


def test_without_credentials_only_anonymous_works(filled: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(monkeypatch, environment(filled.endpoint_url, None))
    with pytest.raises(UserError, match=f"there are no credentials for s3://{ANYONE}: check the credentials"):
        open_storage(Access()).find(f"s3://{ANYONE}/a.tar")
    anonymous = open_storage(Access(anonymous=True))
    found = anonymous.find(f"s3://{ANYONE}/a.tar")[0]
    assert anonymous.read(found, [(0, 3), (4, 7)]) == [b"for", b"all"]
    assert found in anonymous.find(f"s3://{ANYONE}")
    with pytest.raises(UserError, match=r"may not be read \(403"):
        anonymous.find(SHARD)


def profile(home: Path, name: str, key: Key, **settings: str) -> None:
    """Write what `aws configure --profile NAME` writes."""
    (home / ".aws").mkdir(exist_ok=True)
    section = "default" if name == "default" else f"profile {name}"
    with (home / ".aws" / "config").open("a") as file:
        file.write(f"[{section}]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()))
    with (home / ".aws" / "credentials").open("a") as file:
        file.write(f"[{name}]\naws_access_key_id = {key.access}\naws_secret_access_key = {key.secret}\n")


def test_profiles_as_aws_configure_writes_them(filled: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Region and endpoint come from there as well."""
    profile(tmp_path, "default", READER, region="eu-central-1", endpoint_url=filled.endpoint_url)
    profile(tmp_path, "mine", OWNER, region="us-west-2", endpoint_url=filled.endpoint_url)
    profile(tmp_path, "elsewhere", OWNER, endpoint_url="http://127.0.0.1:9")
    enter(monkeypatch, {"AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path)})

    def readable(url: str, access: Access = Access()) -> bool:  # noqa: B008
        storage = open_storage(access)
        try:
            return bool(storage.read(storage.find(url)[0], [(0, 1)])[0])
        except UserError:
            return False

    assert [readable(f"s3://{READABLE}/b.tar"), readable(SHARD)] == [True, False]
    monkeypatch.setenv("AWS_PROFILE", "mine")
    assert readable(SHARD)
    monkeypatch.setenv("AWS_PROFILE", "elsewhere")
    assert [readable(SHARD), readable(SHARD, Access(endpoint_url=f"{filled.endpoint_url}/"))] == [False, True]
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(UserError, match="there is no profile 'nobody'"):
        open_storage(Access()).find(SHARD)
    monkeypatch.setenv("AWS_PROFILE", "mine")
    moved = tmp_path / "moved"
    (tmp_path / ".aws").rename(moved)
    assert not readable(SHARD, Access(endpoint_url=filled.endpoint_url))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(moved / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(moved / "credentials"))
    assert readable(SHARD)
    (moved / "config").write_text("[nonsense\n")
    with pytest.raises(UserError, match=r"cannot be had \(ConfigParseError\): `aws sts get-caller-identity` says why"):
        open_storage(Access()).find(SHARD)


def test_an_endpoint_that_is_no_url(owner: Server) -> None:
    with pytest.raises(UserError, match="the endpoint localhost:9000 is no URL: it should look like https://HOST"):
        open_storage(Access(endpoint_url="localhost:9000")).find(SHARD)
    with pytest.raises(UserError, match="would be logged") as caught:
        open_storage(Access(endpoint_url="http://me:hidden@localhost:9000")).find(SHARD)
    assert "hidden" not in str(caught.value)


def test_an_authority_of_ones_own(
    filled: Server, owner: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FaultProxy(filled.port, tls=certificates(tmp_path)).running() as proxy:
        access = Access(endpoint_url=proxy.url)
        with pytest.raises(UserError, match="has no certificate that can be verified"):
            open_storage(access).find(SHARD)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))
        storage = open_storage(access)
        found = storage.find(SHARD)[0]
        assert found in storage.find(f"s3://{BUCKET}")
        proxy.inject(Fault(503))
        assert storage.read(found, [(0, 10)]) == [DATA[:10]]
        monkeypatch.setattr(s3_storage._Bucket, "_patiently", never)
        assert storage.read(found, [(0, 10)]) == [DATA[:10]]
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "none.pem"))
        with pytest.raises(UserError, match=r"there is no file .*none.pem with certificates"):
            open_storage(access).find(SHARD)


def never(*_: object) -> bytes:
    raise AssertionError("obstore could not read this")


def test_obstore_reads_what_is_in_order(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other way is slower, and for faults."""
    monkeypatch.setattr(s3_storage._Bucket, "_patiently", never)
    found = storage.find(SHARD)[0]
    assert storage.read(found, [(0, 10), (20, 30)]) == [DATA[:10], DATA[20:30]]


FAULTS = {
    "busy": Fault(503),
    "cut at once": Fault(cut_after=0),
    "cut in the middle": Fault(cut_after=50_000),
    "silent": Fault(delay_seconds=3600),
    "silent in the middle": Fault(silent_after=50_000),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_fails_is_tried_again(proxy: FaultProxy, name: str) -> None:
    storage = open_storage(Access())
    found = storage.find(SHARD)[0]
    before = len(proxy.requests)
    proxy.inject(FAULTS[name], times=4)
    ranges = [(0, 100_000), (500_000, 600_000), (800_000, 900_000)]
    assert storage.read(found, ranges) == [DATA[start:stop] for start, stop in ranges]
    assert len(proxy.requests) - before == 4 + 3


@pytest.mark.parametrize("name", ["busy", "cut in the middle", "silent"])
def test_what_goes_on_failing_ends_with_a_sentence(
    proxy: FaultProxy, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "TRIES", 2)
    monkeypatch.setattr(web, "SILENT_SECONDS", 0.1)
    storage = open_storage(Access())
    found = storage.find(SHARD)[0]
    proxy.inject(FAULTS[name], times=1000)
    with pytest.raises(UserError, match=rf"cannot read {SHARD}: .*(still answers 503|time and again)"):
        storage.read(found, [(0, 100_000)])


def test_a_server_that_asks_for_time_gets_it(proxy: FaultProxy) -> None:
    storage = open_storage(Access())
    found = storage.find(SHARD)[0]
    proxy.inject(Fault(503, headers=("Retry-After: 1",)), times=2)
    started = time.monotonic()
    assert storage.read(found, [(0, 10)]) == [DATA[:10]]
    assert time.monotonic() - started >= 1


def test_who_may_only_list_below_a_name_may_list_it(proxy: FaultProxy) -> None:
    """The name itself is refused then, not absent."""
    proxy.inject(Fault(403), pattern=r"(?s)set/n01 .*Range: bytes=0-0")
    assert len(open_storage(Access()).find(f"s3://{BUCKET}/set/n01")) == 2
    assert proxy.rules[0].left == 0


def test_listing_is_tried_again(proxy: FaultProxy) -> None:
    proxy.inject(Fault(503), pattern="list-type=2", times=1)
    proxy.inject(Fault(cut_after=20), pattern="list-type=2", times=1)
    assert len(open_storage(Access()).find(f"s3://{BUCKET}/set/n01/")) == 2


def test_what_cannot_be_reached_is_told_soon(owner: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for endpoint in (f"http://127.0.0.1:{port}", "https://no-such-host.invalid"):
        for url in (SHARD, f"s3://{BUCKET}"):
            with pytest.raises(UserError, match=f"cannot read {url}.*: .*(cannot be reached|is not a known host)"):
                open_storage(Access(endpoint_url=endpoint)).find(url)


@pytest.mark.parametrize("package", ["boto3", "obstore", "urllib3"])
def test_a_missing_package_is_an_extra(package: str) -> None:
    script = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from lockstep.data.storage import Access, open_storage\n"
        "from lockstep.errors import UserError\n"
        "try: open_storage(Access()).find('s3://bucket/key')\n"
        "except UserError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True)
    assert "needs the extra: pip install 'lockstep-train[s3]'" in done.stdout, done.stderr


class Client:
    """What Amazon says of a bucket."""

    def __init__(self, endpoint_url: str, headers: dict[str, str], status: int) -> None:
        self.meta = SimpleNamespace(region_name="us-east-1", endpoint_url=endpoint_url)
        self._response = {"ResponseMetadata": {"HTTPHeaders": headers}, "Error": {"Code": str(status)}}
        self._status = status

    def head_bucket(self, **_: str) -> dict[str, object]:
        if self._status != 200:
            raise ClientError(self._response, "HeadBucket")
        return self._response


@pytest.mark.parametrize("status", [200, 403])
def test_buckets_of_amazon_say_where_they_are(status: int) -> None:
    there = {"x-amz-bucket-region": "eu-central-1"}
    amazon = "https://s3.us-east-1.amazonaws.com"
    assert s3_storage._region(Client(amazon, there, status), BUCKET) == "eu-central-1"
    assert s3_storage._region(Client(amazon, {}, status), BUCKET) == "us-east-1"
    assert s3_storage._region(Client("http://127.0.0.1", there, status), BUCKET) == "us-east-1"
