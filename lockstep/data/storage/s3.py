"""Shards in S3, or in what speaks like it. The only file that imports obstore and boto3.

Credentials, profiles and endpoints are found by boto3, which lists as well. Ranges are read by obstore, the faster one
(`python -m bench s3-clients`), and without retries of its own: what it cannot read is read again by `web`, which waits
as long as a server asks for, and knows what went wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lockstep.data.storage import Access, Object, Range, faults, web
from lockstep.data.storage.braces import expand
from lockstep.data.storage.parallel import Parallel
from lockstep.errors import UserError

try:
    import boto3
    import obstore
    from botocore import UNSIGNED
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.client import Config
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, NoCredentialsError, ProfileNotFound
    from botocore.exceptions import ConnectionError as NoConnection
    from botocore.session import Session
    from obstore.auth.boto3 import Boto3CredentialProvider
    from obstore.exceptions import BaseError
    from obstore.store import S3Store
except ImportError:
    raise UserError("reading from s3:// needs the extra: pip install 'lockstep-train[s3]'") from None

if TYPE_CHECKING:
    from obstore.store import ClientConfig

REGION = "us-east-1"
"""Where nobody names one; servers other than Amazon's take any."""
ADVICE = (
    "check the credentials (AWS_PROFILE, `aws configure`, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) and what "
    "they may read; public data need --anonymous"
)


class Buckets:
    """An object's tag is its ETag, which comes with every part: what has changed is not used."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._parallel = Parallel()
        self._buckets: dict[str, _Bucket] = {}
        self._lock = Lock()

    def find(self, url: str) -> list[Object]:
        found = {one.url: one for several in self._parallel.map(self._find, expand(url)) for one in several}
        return [found[name] for name in sorted(found)]

    def read(self, found: Object, ranges: Sequence[Range]) -> list[bytes]:
        name, key = _split(found.url)
        bucket = self._bucket(name)
        return self._parallel.read(found, ranges, lambda one: bucket.part(found, key, *one))

    def _find(self, url: str) -> list[Object]:
        """An object of that name; or all that match a pattern; or all below it, as below a directory; or all that
        begin so."""
        name, key = _split(url)
        bucket = self._bucket(name)
        if key and not key.endswith("/"):
            one = bucket.look(key)
            if one is not None:
                return [one]
        if "*" in key or "?" in key:
            start = key.replace("?", "*").split("*")[0]
            found = [one for one in bucket.below(start, url) if _matches(_split(one.url)[1], key)]
        elif key and not key.endswith("/"):
            found = bucket.below(f"{key}/", url) or bucket.below(key, url)
        else:
            found = bucket.below(key, url)
        if not found:
            raise UserError(f"there is no {url}, and nothing that begins so")
        return found

    def _bucket(self, name: str) -> _Bucket:
        with self._lock:
            if name not in self._buckets:
                self._buckets[name] = _open(name, self._access)
            return self._buckets[name]


@dataclass(frozen=True)
class _Bucket:
    name: str
    client: Any
    store: S3Store
    web: web.Web

    def look(self, key: str) -> Object | None:
        """An object by its name; None if there is none, or if who may not list may not be told."""
        url = self._url(key)
        answer = self.web.look(self._address(key), url)
        if answer.status in (403, 404):
            return None
        if answer.status not in (200, 206, 416) or answer.size is None:
            raise faults.refused(url, answer.status, answer.code, ADVICE)
        return Object(url, answer.size, _tag(answer.headers.get("ETag")))

    def below(self, prefix: str, url: str) -> list[Object]:
        """All objects whose keys begin so, but for the markers of empty directories. Errors name the URL."""
        try:
            pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
            return [
                Object(self._url(entry["Key"]), entry["Size"], _tag(entry["ETag"]))
                for page in pages
                for entry in page.get("Contents", ())
                if not entry["Key"].endswith("/")
            ]
        except ClientError as error:
            raise self._refused(url, error.response) from None
        except BotoCoreError as error:
            raise _fault(error, url, self.client.meta.endpoint_url) from None

    def part(self, found: Object, key: str, start: int, stop: int) -> bytes:
        try:
            result = obstore.get(self.store, key, options={"range": (start, stop)})
            if not found.tag or _tag(result.meta["e_tag"]) == found.tag:
                data = bytes(result.bytes())
                if len(data) == stop - start:
                    return data
        except (BaseError, OSError, ValueError):
            pass
        return self._patiently(found, key, start, stop)

    def _patiently(self, found: Object, key: str, start: int, stop: int) -> bytes:
        answer = self.web.part(self._address(key), found.url, start, stop)
        if answer.status == 416:  # not even its start is there
            raise faults.changed(found) if found.tag else faults.cut_short(found, answer.size or 0, stop)
        if answer.status not in (200, 206):
            raise faults.refused(found.url, answer.status, answer.code, ADVICE)
        if found.tag and _tag(answer.headers.get("ETag")) != found.tag:
            raise faults.changed(found)
        return answer.taken(found, start, stop)

    def _refused(self, url: str, response: dict[str, Any]) -> UserError:
        code, status = str(response["Error"]["Code"]), int(response["ResponseMetadata"]["HTTPStatusCode"])
        if code == "NoSuchBucket":
            return UserError(f"there is no bucket s3://{self.name} at {self.client.meta.endpoint_url}")
        return faults.refused(url, status, code if code.isalpha() else "", ADVICE)

    def _url(self, key: str) -> str:
        return f"s3://{self.name}/{key}"

    def _address(self, key: str) -> str:
        return f"{self.client.meta.endpoint_url}/{self.name}/{quote(key, safe='/~')}"


def _open(bucket: str, access: Access) -> _Bucket:
    try:
        session = boto3.Session(botocore_session=(core := Session()))
        bundle = core.get_config_variable("ca_bundle")
        credentials = None if access.anonymous else session.get_credentials()
        if credentials is None and not access.anonymous:
            raise NoCredentialsError
        client = _client(session, access, session.region_name or REGION)
        if (region := _region(client, bucket)) != client.meta.region_name:
            client = _client(session, access, region)
        provider = None if access.anonymous else Boto3CredentialProvider(session)
    except BotoCoreError as error:
        raise _fault(error, f"s3://{bucket}", access.endpoint_url or "S3") from None
    if bundle and not Path(bundle).is_file():
        raise UserError(
            f"there is no file {bundle} with certificates: check AWS_CA_BUNDLE and ca_bundle in the profile"
        )

    store = _store(bucket, client.meta.endpoint_url, region, provider, bundle)
    return _Bucket(bucket, client, store, web.Web(credentials and _signer(credentials, region), bundle))


def _signer(credentials: Any, region: str) -> web.Sign:
    def sign(url: str, headers: dict[str, str]) -> dict[str, str]:
        request = AWSRequest("GET", url, headers=headers)
        S3SigV4Auth(credentials.get_frozen_credentials(), "s3", region).add_auth(request)
        return dict(request.headers)

    return sign


def _client(session: Any, access: Access, region: str) -> Any:
    """An endpoint that is not given comes from the environment or the profile, as everywhere."""
    endpoint = access.endpoint_url
    if endpoint is not None:
        faults.without_secrets(endpoint)
        if not endpoint.startswith(("http://", "https://")):
            raise UserError(f"the endpoint {endpoint} is no URL: it should look like https://HOST or http://HOST:PORT")
    config = Config(
        connect_timeout=web.CONNECT_SECONDS,
        read_timeout=web.SILENT_SECONDS,
        retries={"mode": "standard", "max_attempts": 3},
        s3={"addressing_style": "path"},
        **({"signature_version": UNSIGNED} if access.anonymous else {}),
    )
    return session.client("s3", region_name=region, endpoint_url=endpoint and endpoint.rstrip("/"), config=config)


def _region(client: Any, bucket: str) -> str:
    """Amazon's buckets lie in regions, and say in which; of other servers nothing is asked."""
    region = str(client.meta.region_name)
    if ".amazonaws.com" not in client.meta.endpoint_url:
        return region
    try:
        response = client.head_bucket(Bucket=bucket)
    except ClientError as error:
        response = error.response
    return str(response["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region", region))


def _store(
    bucket: str, endpoint: str, region: str, provider: Boto3CredentialProvider | None, bundle: str | None
) -> S3Store:
    """Nothing is left for obstore to find in the environment: boto3 has looked there, and knows more places."""
    options: ClientConfig = {
        "allow_http": True,
        "connect_timeout": timedelta(seconds=web.CONNECT_SECONDS),
        "read_timeout": timedelta(seconds=web.SILENT_SECONDS),
        "timeout": timedelta(hours=1),
    }
    if bundle:
        options["root_certificate"] = Path(bundle).read_bytes()
    return S3Store(
        bucket,
        config={
            "endpoint": endpoint,
            "aws_endpoint_url_s3": endpoint,
            "region": region,
            "skip_signature": provider is None,
            "virtual_hosted_style_request": False,
        },
        client_options=options,
        retry_config={"max_retries": 0},
        credential_provider=provider,
    )


def _fault(error: BotoCoreError, url: str, endpoint: str) -> UserError:
    """In words of our own: those of the library may hold what a credential process said."""
    if isinstance(error, NoConnection | HTTPClientError):
        return faults.unreachable(url, endpoint, "cannot be reached: check the address and the network")
    if isinstance(error, ProfileNotFound):
        return UserError(f"there is no profile {error.kwargs['profile']!r} in ~/.aws/config: check AWS_PROFILE")
    if isinstance(error, NoCredentialsError):
        return UserError(f"there are no credentials for {url}: {ADVICE}")
    return UserError(
        f"the credentials for {url} cannot be had ({type(error).__name__}): `aws sts get-caller-identity` says why"
    )


def _split(url: str) -> tuple[str, str]:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    if not bucket or "@" in bucket or ":" in bucket:
        raise UserError("a URL in S3 is s3://BUCKET/KEY, without credentials, which would be logged")
    return bucket, key


def _matches(key: str, pattern: str) -> bool:
    """As in file names, where a star does not stand for a slash."""
    return key.count("/") == pattern.count("/") and PurePosixPath(key).match(pattern)


def _tag(etag: str | None) -> str:
    return (etag or "").strip('"')
