"""Small files in every version of CIFAR, for tests: what the official ones look like, byte by byte."""

from __future__ import annotations

import io
import struct
import tarfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

Records = npt.NDArray[np.uint8]

FINE = [f"fine {number}" for number in range(100)]
COARSE = [f"coarse {number}" for number in range(20)]


def cifar10(count: int, seed: int = 0) -> Records:
    """Random records: a label and 3072 pixels."""
    records = np.random.RandomState(seed).randint(0, 256, size=(count, 3073)).astype(np.uint8)
    records[:, 0] %= 10
    return records


def cifar100(count: int, seed: int = 0) -> Records:
    """Random records: coarse label, fine label, pixels."""
    records = np.random.RandomState(seed).randint(0, 256, size=(count, 3074)).astype(np.uint8)
    records[:, 0] %= 20
    records[:, 1] %= 100
    return records


def python2_pickle(entries: dict[str, str | list[int] | list[str] | Records]) -> bytes:
    """Protocol 2 as Python 2 wrote it: strings are bytes without an encoding, arrays are rebuilt by numpy."""
    out = io.BytesIO()
    out.write(b"\x80\x02}(")

    def string(text: bytes) -> None:
        out.write(b"U" + bytes([len(text)]) + text if len(text) < 256 else b"T" + struct.pack("<i", len(text)) + text)

    def array(values: Records) -> None:
        out.write(b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01")
        out.write(b"M" + struct.pack("<H", values.shape[0]) + b"M" + struct.pack("<H", values.shape[1]) + b"\x86")
        out.write(b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89")
        string(values.tobytes())
        out.write(b"tb")

    for key, value in entries.items():
        string(key.encode())
        if isinstance(value, np.ndarray):
            array(value)
        elif isinstance(value, str):
            string(value.encode())
        else:
            out.write(b"](")
            for one in value:
                out.write(b"K" + bytes([one]) if isinstance(one, int) else b"")
                if isinstance(one, str):
                    string(one.encode())
            out.write(b"e")
    out.write(b"u.")
    return out.getvalue()


def pickle10(records: Records) -> bytes:
    names = [f"image_{number}.png" for number in range(len(records))]
    return python2_pickle(
        {"batch_label": "batch", "labels": records[:, 0].tolist(), "data": records[:, 1:], "filenames": names}
    )


def pickle100(records: Records) -> bytes:
    return python2_pickle(
        {
            "filenames": [f"image_{number}.png" for number in range(len(records))],
            "batch_label": "batch",
            "fine_labels": records[:, 1].tolist(),
            "coarse_labels": records[:, 0].tolist(),
            "data": records[:, 2:],
        }
    )


def version(kind: str, form: str, train: Records, test: Records) -> tuple[str, dict[str, bytes]]:
    """The folder of a version, and its files."""
    if kind == "cifar10":
        parts = np.array_split(train, 5)
        if form == "binary":
            files = {f"data_batch_{number + 1}.bin": part.tobytes() for number, part in enumerate(parts)}
            names = "".join(f"class {number}\n" for number in range(10)) + "\n"
            return "cifar-10-batches-bin", {
                **files,
                "test_batch.bin": test.tobytes(),
                "batches.meta.txt": names.encode(),
            }
        files = {f"data_batch_{number + 1}": pickle10(part) for number, part in enumerate(parts)}
        meta = python2_pickle({"label_names": [f"class {number}" for number in range(10)]})
        return "cifar-10-batches-py", {**files, "test_batch": pickle10(test), "batches.meta": meta}
    if form == "binary":
        texts = {f"{key}_label_names.txt": "\n".join(v).encode() for key, v in (("fine", FINE), ("coarse", COARSE))}
        return "cifar-100-binary", {"train.bin": train.tobytes(), "test.bin": test.tobytes(), **texts}
    meta = python2_pickle({"fine_label_names": FINE, "coarse_label_names": COARSE})
    return "cifar-100-python", {"train": pickle100(train), "test": pickle100(test), "meta": meta}


def write_folder(root: Path, folder: str, files: dict[str, bytes]) -> Path:
    (root / folder).mkdir(parents=True)
    for name, data in files.items():
        (root / folder / name).write_bytes(data)
    return root / folder


def write_tar(path: Path, folder: str, files: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}" if folder else name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path
