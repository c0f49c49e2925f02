"""Reads ranges of objects in S3 and throws them away: `python -m bench.peers.s3reader CLIENT PLAN` prints MB/s, and
its seconds of CPU per GB.

All clients read the same ranges, with the same number of requests in flight; only WebDataset reads whole tars, one
after the other.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.data.storage import Access, Object, open_storage
from lockstep.data.storage.parallel import THREADS

OBJECTS = 3
"""Read side by side by the clients that take several ranges at once."""


@dataclass(frozen=True)
class Plan:
    """Ranges of one length, at random places."""

    bucket: str
    size: int
    """Of every object."""
    length: int
    starts: dict[str, list[int]]
    """Of all members of a tar, by key; no two touch each other, or some clients would read them as one."""
    passes: int

    def ranges(self) -> list[tuple[str, int]]:
        return [(key, start) for key, starts in self.starts.items() for start in starts]


Reader = Callable[[Plan], int]
"""Reads everything and returns the number of bytes."""


def ours() -> Reader:
    """As a worker reads: some objects side by side, each with all its ranges at once."""
    storage, threads = open_storage(Access()), ThreadPoolExecutor(OBJECTS)
    tags = {one.url: one.tag for one in storage.find(f"s3://{_plan().bucket}")}

    def read(plan: Plan) -> int:
        def one(key: str) -> int:
            url = f"s3://{plan.bucket}/{key}"
            ranges = [(start, start + plan.length) for start in plan.starts[key]]
            return _sum(storage.read(Object(url, plan.size, tags[url]), ranges))

        return sum(threads.map(one, plan.starts))

    return read


def boto3_threads() -> Reader:
    import boto3
    from botocore.client import Config

    client: Any = boto3.client("s3", config=Config(max_pool_connections=THREADS))
    threads = ThreadPoolExecutor(THREADS)

    def read(plan: Plan) -> int:
        def one(place: tuple[str, int]) -> int:
            key, start = place
            span = f"bytes={start}-{start + plan.length - 1}"
            return len(client.get_object(Bucket=plan.bucket, Key=key, Range=span)["Body"].read())

        return sum(threads.map(one, plan.ranges()))

    return read


def obstore_threads() -> Reader:
    import obstore

    store, threads = _store(), ThreadPoolExecutor(THREADS)

    def read(plan: Plan) -> int:
        def one(place: tuple[str, int]) -> int:
            return len(obstore.get_range(store, place[0], start=place[1], length=plan.length))

        return sum(threads.map(one, plan.ranges()))

    return read


def obstore_async() -> Reader:
    import obstore

    store = _store()

    async def read_all(plan: Plan) -> int:
        places = iter(plan.ranges())

        async def several() -> int:
            total = 0
            for key, start in places:
                total += len(await obstore.get_range_async(store, key, start=start, length=plan.length))
            return total

        return sum(await asyncio.gather(*(several() for _ in range(THREADS))))

    return lambda plan: asyncio.run(read_all(plan))


def obstore_ranges() -> Reader:
    """It makes ten requests at once for each object."""
    import obstore

    store, threads = _store(), ThreadPoolExecutor(OBJECTS)

    def read(plan: Plan) -> int:
        def one(key: str) -> int:
            starts = plan.starts[key]
            return _sum(obstore.get_ranges(store, key, starts=starts, lengths=[plan.length] * len(starts), coalesce=0))

        return sum(threads.map(one, plan.starts))

    return read


def webdataset() -> Reader:
    """As its users read: by curl, without a signature; nothing is decoded."""
    import webdataset as wds  # type: ignore[import-not-found, import-untyped, unused-ignore]

    def read(plan: Plan) -> int:
        urls = [f"{os.environ['AWS_ENDPOINT_URL']}/{plan.bucket}/{key}" for key in plan.starts]
        samples = wds.WebDataset(urls, shardshuffle=False, empty_check=False)
        return sum(len(sample["jpg"]) for sample in samples)

    return read


WEBDATASET = "WebDataset"
CLIENTS: dict[str, Callable[[], Reader]] = {
    "Lockstep": ours,
    "boto3 in threads": boto3_threads,
    "obstore get_range in threads": obstore_threads,
    "obstore get_range_async": obstore_async,
    "obstore get_ranges": obstore_ranges,
    WEBDATASET: webdataset,
}


def _store() -> Any:
    from obstore.store import S3Store

    return S3Store(_plan().bucket, client_options={"allow_http": True})


def _sum(parts: Iterable[Any]) -> int:
    return sum(len(part) for part in parts)


def _plan() -> Plan:
    return Plan(**json.loads(Path(sys.argv[2]).read_text()))


def main() -> None:
    plan = _plan()
    read = CLIENTS[sys.argv[1]]()
    read(plan)  # connections are there, and the server knows its objects
    started, used = time.perf_counter(), time.process_time()
    total = sum(read(plan) for _ in range(plan.passes))
    assert total == plan.passes * plan.length * len(plan.ranges())
    print(total / 1e6 / (time.perf_counter() - started), (time.process_time() - used) / total * 1e9, flush=True)
    os._exit(0)  # obstore's own threads may abort the process when the interpreter ends while they are at work


if __name__ == "__main__":
    main()
