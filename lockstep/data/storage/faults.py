"""What users are told when data cannot be had. Every kind of storage says the same in the same words.

None of these sentences has a header, a query or the text of another library's error in it: those may hold credentials.
"""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from lockstep.data.storage import Object
from lockstep.errors import UserError

SECRETS = ("X-Amz-Signature", "X-Goog-Signature", "Signature", "sig")
"""What a URL that is a credential itself has in its query."""


def changed(found: Object) -> UserError:
    return UserError(f"{found.url} has changed since it was indexed: index it again with `lockstep data index`")


def cut_short(found: Object, end: int, wanted: int) -> UserError:
    return UserError(f"{found.url} ends at byte {end}, before byte {wanted}: it was cut short, or its index is wrong")


def missing(url: str) -> UserError:
    return UserError(f"there is no {url}")


def unreachable(url: str, host: str, why: str) -> UserError:
    return UserError(f"cannot read {url}: {host} {why}")


def refused(url: str, status: int, code: str, advice: str) -> UserError:
    """For an answer that is none of the others, and no better after all retries."""
    said = f"{status} {code}".strip()
    if status in (401, 403):
        return UserError(f"{url} may not be read ({said}): {advice}")
    if status in (404, 410):
        return missing(url)
    if status == 429 or status >= 500:
        return UserError(f"cannot read {url}: its server still answers {said} after several tries, try again later")
    return UserError(f"cannot read {url}: its server answers {said}, check the URL and the endpoint")


def without_secrets(url: str) -> None:
    """URLs are written to config.json and to logs, so they must not hold what nobody may see."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise UserError("a URL has a host that is none: check it") from None
    if "@" in parts.netloc:
        raise UserError(f"a URL of {parts.netloc.rpartition('@')[2]} has a password in it, which would be logged")
    if parts.scheme != "s3" and not set(SECRETS).isdisjoint(parse_qs(parts.query)):
        raise UserError(f"a URL of {parts.netloc} is a signed one, which would be logged: use s3:// with credentials")
