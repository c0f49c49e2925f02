"""Sentences for users, and what must not be in them."""

from __future__ import annotations

import pytest

from lockstep.data.storage import faults
from lockstep.errors import UserError


@pytest.mark.parametrize(
    "url",
    [
        "https://me:hidden@host/x",
        "https://host/x?X-Amz-Credential=me&X-Amz-Signature=hidden",
        "https://host/x?sig=hidden",
    ],
)
def test_a_url_with_a_secret_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UserError, match="would be logged") as caught:
        faults.without_secrets(url)
    assert "hidden" not in str(caught.value)


def test_other_urls_may_have_queries() -> None:
    for url in ("https://host/x?version=3", "s3://bucket/a?sig=b", "http://host:8080/x#y"):
        faults.without_secrets(url)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, r"s3://b/k may not be read \(401 Code\): do this"),
        (403, r"s3://b/k may not be read \(403 Code\): do this"),
        (404, "there is no s3://b/k"),
        (410, "there is no s3://b/k"),
        (429, "still answers 429 Code after several tries"),
        (503, "still answers 503 Code after several tries"),
        (400, "answers 400 Code, check the URL"),
    ],
)
def test_every_status_has_a_sentence(status: int, said: str) -> None:
    with pytest.raises(UserError, match=said):
        raise faults.refused("s3://b/k", status, "Code", "do this")


def test_a_host_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match="a URL has a host that is none"):
        faults.without_secrets("http://[1/x")
