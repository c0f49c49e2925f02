"""Small image files of every kind, for tests that decode."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter


def smooth(width: int, height: int, seed: int = 0) -> Image.Image:
    """Clouds of colour: what different scalers and decoders agree on."""
    noise = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    cloud = Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)
    return cloud.filter(ImageFilter.GaussianBlur(2))


def encoded(image: Image.Image, format_: str = "jpeg", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, format_, **({"quality": 95} if format_ == "jpeg" else {}), **options)
    return file.getvalue()


def turned(image: Image.Image, orientation: int) -> bytes:
    """A JPEG whose EXIF says how it is to be turned."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(image, exif=exif)


def sixteen_bits(image: Image.Image) -> Image.Image:
    return Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)


def see_through(image: Image.Image) -> Image.Image:
    result = image.copy()
    result.putalpha(image.convert("L"))
    return result


KINDS: dict[str, Callable[[Image.Image], bytes]] = {
    "colour": encoded,
    "progressive": lambda image: encoded(image, progressive=True),
    "without subsampling": lambda image: encoded(image, subsampling=0),
    "grey": lambda image: encoded(image.convert("L")),
    "cmyk": lambda image: encoded(image.convert("CMYK")),
    "palette": lambda image: encoded(image.convert("P"), "gif"),
    "png": lambda image: encoded(image, "png"),
    "16 bits": lambda image: encoded(sixteen_bits(image), "png"),
    "transparent": lambda image: encoded(see_through(image), "png"),
    **{f"turned {orientation}": partial(turned, orientation=orientation) for orientation in range(1, 9)},
    "bytes after the end": lambda image: encoded(image) + b"\0\0",
    "nonsense for EXIF": lambda image: encoded(image, exif=b"Exif\0\0nonsense"),
}
"""As they occur in the real ImageNet, and some that need not."""


def of_kind(kind: str, width: int = 120, height: int = 90, seed: int = 0) -> bytes:
    return KINDS[kind](smooth(width, height, seed))


def claiming(data: bytes, width: int, height: int) -> bytes:
    """The same JPEG with other numbers in its header."""
    for marker in (b"\xff\xc0", b"\xff\xc2"):
        if (at := data.find(marker)) >= 0:
            size = height.to_bytes(2, "big") + width.to_bytes(2, "big")
            return data[: at + 5] + size + data[at + 9 :]
    raise AssertionError("no frame header")


KINDS_IN_SHARDS = ("colour", "grey", "progressive", "cmyk", "png", "turned 6", "colour", "palette")


def several(count: int, seed: int = 0) -> list[bytes]:
    """Files of various sizes and kinds, no two alike."""
    sizes = np.random.default_rng(seed).integers(40, 130, (count, 2))
    return [
        of_kind(KINDS_IN_SHARDS[number % len(KINDS_IN_SHARDS)], int(width), int(height), 1000 * seed + number)
        for number, (width, height) in enumerate(sizes)
    ]


def write_tars(directory: Path, classes: int = 4, each: int = 12) -> Path:
    """One tar per class, as ImageNet comes: n01500000.tar with n01500000_0.JPEG and so on."""
    directory.mkdir(parents=True, exist_ok=True)
    for label in range(classes):
        name = f"n{1500 + label:05d}000"
        with tarfile.open(directory / f"{name}.tar", "w") as tar:
            for number, data in enumerate(several(each, label)):
                member = tarfile.TarInfo(f"{name}_{number}.JPEG")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return directory


def write_folders(directory: Path, classes: int = 4, each: int = 12) -> Path:
    """The same images in a folder per class."""
    for label in range(classes):
        name = f"n{1500 + label:05d}000"
        (directory / name).mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(several(each, label)):
            (directory / name / f"{name}_{number:03d}.JPEG").write_bytes(data)
    return directory


def damage(tar: Path, number: int) -> str:
    """Make a member of a tar half an image; its name."""
    with tarfile.open(tar) as opened:
        member = opened.getmembers()[number]
    with tar.open("r+b") as file:
        file.seek(member.offset_data + member.size // 2)
        file.write(bytes(member.size - member.size // 2))
    return member.name


def difference(one: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8]) -> float:
    """The mean over all pixels, of 255."""
    return float(np.abs(one.astype(np.int64) - other.astype(np.int64)).mean())
