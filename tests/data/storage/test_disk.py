"""The cache on a host's disk."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lockstep.data.storage import Object, Storage, disk
from lockstep.data.storage.disk import BLOCK, FORMAT, PAGE, Shelf, cached, runs
from lockstep.errors import UserError
from tests.conftest import REPOSITORY
from tests.data.storage.remote import Remote, contents

SHARD = Object("s3://bucket/shard.tar", 10 * BLOCK + 777, "tag")
LIMIT = 64 << 20


def shard(name: str, blocks: int = 10) -> Object:
    return Object(f"s3://bucket/{name}.tar", blocks * BLOCK, "tag")


def entry(directory: Path, found: Object = SHARD) -> Path:
    return Shelf(directory / FORMAT, LIMIT).path(found)


def whole(storage: Storage, found: Object = SHARD) -> bytes:
    return storage.read(found, [(0, found.size)])[0]


def used(directory: Path) -> int:
    """What the blocks take of the disk; others may remove some while they are counted."""
    total = 0
    for path in (directory / FORMAT).glob("??/*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_blocks * 512
    return total


def test_every_byte_is_read_once_from_its_source(tmp_path: Path) -> None:
    remote, draw, expected = Remote(), random.Random(1), contents(SHARD)
    storage = cached(remote, tmp_path, LIMIT)
    for _ in range(300):
        places = [sorted(draw.choices(range(SHARD.size + 1), k=2)) for _ in range(draw.randrange(4))]
        ranges = [(start, stop) for start, stop in places]
        assert storage.read(SHARD, ranges) == [expected[start:stop] for start, stop in ranges]
    assert whole(storage) == expected
    assert remote.bytes_read == SHARD.size
    again = Remote()
    assert whole(cached(again, tmp_path, LIMIT)) == expected
    assert not again.spans
    assert cached(remote, tmp_path, LIMIT).find("x") == remote.find("x")


def test_runs_of_neighbours() -> None:
    assert runs([]) == []
    assert runs([3]) == [(3, 4)]
    assert runs([0, 1, 2, 5, 7, 8]) == [(0, 3), (5, 6), (7, 9)]


@pytest.mark.parametrize(
    "found",
    [Object("/a/file", 5, "tag"), Object("https://host/untold", 5, "")],
    ids=["a file", "who knows whether it changes"],
)
def test_what_is_not_kept(tmp_path: Path, found: Object) -> None:
    remote = Remote()
    storage = cached(remote, tmp_path, LIMIT)
    for _ in range(2):
        assert storage.read(found, [(1, 3)]) == [contents(found)[1:3]]
    assert remote.spans == [(1, 3), (1, 3)]
    assert cached(remote, tmp_path, 0) is remote


def test_an_object_that_changed_is_another(tmp_path: Path) -> None:
    storage = cached(Remote(), tmp_path, LIMIT)
    later = Object(SHARD.url, SHARD.size, "later")
    assert whole(storage) == contents(SHARD)
    assert whole(storage, later) == contents(later) != contents(SHARD)


def test_more_than_there_is_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="before byte"):
        cached(Remote(), tmp_path, LIMIT).read(SHARD, [(0, SHARD.size + 1)])


def flip(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 1]))


@pytest.mark.parametrize(
    ("place", "lost"),
    [(PAGE + 5 * BLOCK + 99, {5}), (8 * 3, {3}), (8 * 3 + 4, {3}), (PAGE + 10 * BLOCK + 776, {10})],
    ids=["in a block", "in a checksum", "in a mark", "in the last byte"],
)
def test_a_damaged_block_is_read_again_and_repaired(tmp_path: Path, place: int, lost: set[int]) -> None:
    whole(cached(Remote(), tmp_path, LIMIT))
    flip(entry(tmp_path), place)
    for expected in (lost, set()):
        remote = Remote()
        assert whole(cached(remote, tmp_path, LIMIT)) == contents(SHARD)
        assert {start // BLOCK for start, _ in remote.spans} == expected


@pytest.mark.parametrize("size", [0, 3, 50, PAGE, PAGE + 4 * BLOCK + 17])
def test_a_file_that_is_cut_off_is_as_good_as_its_rest(tmp_path: Path, size: int) -> None:
    whole(cached(Remote(), tmp_path, LIMIT))
    os.truncate(entry(tmp_path), size)
    for _ in range(2):
        assert whole(cached(Remote(), tmp_path, LIMIT)) == contents(SHARD)


def test_blocks_that_changed_places_are_noticed(tmp_path: Path) -> None:
    whole(cached(Remote(), tmp_path, LIMIT))
    data = bytearray(entry(tmp_path).read_bytes())
    for size, start in ((8, 0), (BLOCK, PAGE)):
        one, other = slice(start, start + size), slice(start + size, start + 2 * size)
        data[one], data[other] = data[other], data[one]
    entry(tmp_path).write_bytes(data)
    assert whole(cached(Remote(), tmp_path, LIMIT)) == contents(SHARD)


def test_what_was_used_least_recently_goes_first(tmp_path: Path) -> None:
    limit = 66 * BLOCK
    storage = cached(Remote(), tmp_path, limit)
    for age, name in enumerate("cfadbe"):
        whole(storage, shard(name))
        os.utime(entry(tmp_path, shard(name)), (1000 + age, 1000 + age))
    whole(storage, shard("c"))  # used again
    whole(storage, shard("g"))
    assert [name for name in "cfadbeg" if entry(tmp_path, shard(name)).exists()] == list("cdbeg")
    assert used(tmp_path) <= limit


def test_the_limit_holds_with_objects_of_any_size(tmp_path: Path) -> None:
    limit, draw = 30 * BLOCK, random.Random(2)
    storage = cached(Remote(), tmp_path, limit)
    for number in range(60):
        found = Object(f"s3://bucket/{number}", draw.randrange(1, 40 * BLOCK), "tag")
        assert whole(storage, found) == contents(found)
        assert used(tmp_path) <= limit
    assert used(tmp_path) > 0


def test_a_count_that_is_wrong_or_gone_is_made_again(tmp_path: Path) -> None:
    limit = 40 * BLOCK
    for count in ("", "nonsense", str(10**30)):
        whole(cached(Remote(), tmp_path, limit))
        (tmp_path / FORMAT / "used").write_text(count)
        remote = Remote()
        storage = cached(remote, tmp_path, limit)
        whole(storage, shard("more"))
        assert whole(storage) == contents(SHARD)
        assert remote.bytes_read <= shard("more").size
        assert used(tmp_path) <= limit


KILLED = """
import os, signal, sys
from pathlib import Path
from lockstep.data.storage import disk
from tests.data.storage.remote import Remote
from tests.data.storage.test_disk import SHARD

write, left = disk._write, int(sys.argv[2])

def die(file, data, offset):
    global left
    left -= 1
    if left == 0:
        write(file, bytes(data)[: len(data) // 2], offset)
        os.kill(os.getpid(), signal.SIGKILL)
    write(file, data, offset)

disk._write = die
disk.cached(Remote(), Path(sys.argv[1]), 64 << 20).read(SHARD, [(0, SHARD.size)])
"""


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_who_is_killed_while_writing_leaves_nothing_wrong(tmp_path: Path, writes: int) -> None:
    """The first write is that of the count, then blocks and words in turn."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(writes)], cwd=REPOSITORY)
    assert done.returncode == -signal.SIGKILL
    for _ in range(2):
        assert whole(cached(Remote(), tmp_path, LIMIT)) == contents(SHARD)


SHARED = """
import random, sys
from pathlib import Path
from lockstep.data.storage.disk import BLOCK, cached
from tests.data.storage.remote import Remote, contents
from tests.data.storage.test_disk import shard

draw, limit = random.Random(int(sys.argv[2])), int(sys.argv[3])
storage = cached(Remote(), Path(sys.argv[1]), limit)
sys.stdin.read()  # all begin at once
for _ in range(80):
    found = shard(str(draw.randrange(12)), 8)
    start = draw.randrange(found.size)
    stop = min(found.size, start + draw.randrange(1, 4 * BLOCK))
    assert storage.read(found, [(start, stop)]) == [contents(found)[start:stop]]
"""


def test_processes_share_it_while_there_is_too_little_room(tmp_path: Path) -> None:
    """They write the same blocks, and remove from each other what they read."""
    limit = 40 * BLOCK
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SHARED, str(tmp_path), str(seed), str(limit)], cwd=REPOSITORY, stdin=subprocess.PIPE
        )
        for seed in range(4)
    ]
    try:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        while any(process.poll() is None for process in processes):
            assert used(tmp_path) <= limit if (tmp_path / FORMAT).exists() else True
            time.sleep(0.02)
        assert [process.returncode for process in processes] == [0] * 4
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_threads_share_it(tmp_path: Path) -> None:
    remote = Remote()
    storage = cached(remote, tmp_path, 30 * BLOCK)
    wrong: list[str] = []

    def read(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(60):
            found = shard(str(draw.randrange(8)), 6)
            if whole(storage, found) != contents(found):
                wrong.append(found.url)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert used(tmp_path) <= 30 * BLOCK


@pytest.mark.parametrize("is_first", [True, False])
def test_what_is_being_written_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_first: bool) -> None:
    """Who makes room waits for a slow writer: there is room for one of the two only. The very first writer has counted
    what is there, and locks otherwise than those who come after it."""
    storage, limit = cached(Remote(), tmp_path, 15 * BLOCK), 15 * BLOCK
    if not is_first:
        whole(storage, shard("before", 1))
    write, begun, go_on = disk._write, threading.Event(), threading.Event()

    def slow(file: int, data: bytes | memoryview, offset: int) -> None:
        if len(data) == BLOCK and threading.current_thread() is first:
            begun.set()
            go_on.wait(20)
        write(file, data, offset)

    monkeypatch.setattr(disk, "_write", slow)
    first = threading.Thread(target=whole, args=(storage, shard("a")))
    second = threading.Thread(target=whole, args=(storage, shard("b")))
    first.start()
    assert begun.wait(20)
    second.start()
    second.join(0.3)
    go_on.set()
    first.join()
    second.join()
    assert 0 < used(tmp_path) <= limit


def test_a_file_that_is_removed_while_it_is_read_stays_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole(cached(Remote(), tmp_path, LIMIT))
    words = disk._words

    def remove(file: int, first: int, stop: int) -> object:
        entry(tmp_path).unlink(missing_ok=True)
        return words(file, first, stop)

    monkeypatch.setattr(disk, "_words", remove)
    remote = Remote()
    assert whole(cached(remote, tmp_path, LIMIT)) == contents(SHARD)
    assert not remote.spans


def test_a_full_disk_is_told_once_and_done_without(small_disk: Path) -> None:
    said: list[str] = []
    storage = cached(Remote(), small_disk, LIMIT, said.append)
    for _ in range(3):
        assert whole(storage) == contents(SHARD)
    assert len(said) == 1
    assert said[0].startswith(f"the cache {small_disk}")
    assert "No space left" in said[0]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_any_error_of_the_disk_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    said: list[str] = []
    storage = cached(Remote(), tmp_path, LIMIT, said.append)
    monkeypatch.setattr(disk, "_write", fail)
    for _ in range(2):
        assert whole(storage) == contents(SHARD)
    assert len(said) == 1
    assert os.strerror(code) in said[0]


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot make the cache .*file"):
        cached(Remote(), tmp_path / "file", LIMIT)


def test_a_warning_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    disk._to_stderr("it is full")
    assert capsys.readouterr().err == "lockstep: it is full\n"
