"""Pickles are read, and nothing that they carry is executed."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep.data import pickles
from lockstep.errors import UserError
from tests.data import files

RECORDS = files.cifar10(3)


class Bomb:
    def __init__(self, how: Any, *given: Any) -> None:
        self._call = how, given

    def __reduce__(self) -> Any:
        return self._call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_would_create_a_file_creates_none(tmp_path: Path, protocol: int) -> None:
    """F4: the control shows that Python itself would."""
    target = tmp_path / "created"
    data = pickle.dumps({"data": Bomb(os.mkdir, str(target)), "labels": [1]}, protocol)
    with pytest.raises(UserError, match="nothing of it was executed"):
        pickles.load(data, "evil")
    assert not target.exists()
    pickle.loads(data)
    assert target.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"(ios\nsystem\n(S'true'\ntR.",  # INST
        b"(cos\nsystem\nS'true'\no.",  # OBJ
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"\x80\x04\x8c\x0anumpy.core\x8c\x16multiarray._reconstruct\x93.",  # a dotted name
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n}(U\x08__call__Nub.",  # changing a stand-in
        b"\x80\x02cnumpy\nload\nU\x01x\x85R.",
        b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\x00\x00.",  # a bytearray of 256 TiB
        b"\x80\x02Nr\xff\xff\xff\x7f.",  # a memo of 2**31 places
        b"\x80\x02\x82\x01.",  # a registered extension
        b"\x80\x02]q\x00h\x00ah\x00.",  # a list in itself
        b"",
        b"\x80\x02K\x01.",
    ],
)
def test_tricks_are_sentences(data: bytes) -> None:
    """F4."""
    with pytest.raises(UserError, match="evil"):
        pickles.to_records(pickles.load(data, "evil"), "evil")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_that_python_3_wrote_are_read_too(protocol: int) -> None:
    """F4: any protocol; text keys, byte keys; labels as a list or as an array; rows or columns first."""
    pixels = RECORDS[:, 1:]
    for keys in (str, str.encode):
        for labels in (RECORDS[:, 0].tolist(), RECORDS[:, 0].astype(np.int64)):
            for data in (pixels.copy(), np.asfortranarray(pixels)):
                text = pickle.dumps({keys("data"): data, keys("labels"): labels}, protocol)
                records, _ = pickles.to_records(pickles.load(text, "file"), "file")
                assert (records == RECORDS).all()


def test_python_2_pickles_are_what_python_reads_as_well() -> None:
    """The files of the other tests are real pickles."""
    found = pickle.loads(files.pickle10(RECORDS), encoding="bytes")
    assert (found[b"data"] == RECORDS[:, 1:]).all()
    assert found[b"labels"] == RECORDS[:, 0].tolist()
    assert found[b"filenames"][0] == b"image_0.png"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"labels": [1, 10, 2]}, "record 1: label 10 is out of range"),
        ({"labels": [1, 2]}, "3 images and 2 `labels`"),
        ({"labels": [1, -1, 2]}, "record 1: label -1"),
        ({"labels": [1, 2, 1.5]}, "record 2|damaged"),
        ({"labels": None}, "no `labels`"),
        ({"data": RECORDS}, r"shape \(3, 3073\), .*: download it again"),
        ({"data": RECORDS[:, 1:].astype(np.float32)}, "no array of numbers"),
        ({"data": RECORDS[:0, 1:], "labels": []}, "holds no images: download it again"),
        ({"data": "text"}, "no array"),
    ],
)
def test_wrong_contents_are_named(change: dict[str, Any], sentence: str) -> None:
    """F6."""
    entries = {"data": RECORDS[:, 1:], "labels": RECORDS[:, 0].tolist(), **change}
    with pytest.raises(UserError, match=sentence):
        pickles.to_records(pickles.load(pickle.dumps(entries, 3), "file"), "file")


def test_a_pickle_without_data() -> None:
    with pytest.raises(UserError, match="no data file of CIFAR"):
        pickles.to_records(pickles.load(files.python2_pickle({"label_names": ["a"]}), "meta"), "meta")
