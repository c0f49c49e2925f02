"""Decoding next to others, with a few small files: who is there, and what has an aim."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from bench import images
from lockstep.data.decode import Window


@pytest.fixture
def tars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tar with three JPEGs; nobody who needs processes of their own or is not installed everywhere."""
    generator = np.random.default_rng(0)
    with tarfile.open(tmp_path / "some.tar", "w") as tar:
        for number in range(3):
            file = io.BytesIO()
            Image.fromarray(generator.integers(0, 256, (48, 64, 3), dtype=np.uint8)).save(file, "JPEG")
            info = tarfile.TarInfo(f"{number}.jpeg")
            info.size = file.tell()
            file.seek(0)
            tar.addfile(info, file)
    monkeypatch.setenv(images.VARIABLE, str(tmp_path))
    monkeypatch.setattr(images, "is_there", lambda module: module in sys.modules and module == "simplejpeg")
    for expensive in ("_loader", "_processes"):
        monkeypatch.setattr(images, expensive, lambda wanted: lambda path: 1.0)


@pytest.mark.usefixtures("tars")
def test_the_floor_is_the_bare_decoding_of_whole_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    simplejpeg = ModuleType("simplejpeg")
    simplejpeg.decode_jpeg = decoded.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "simplejpeg", simplejpeg)
    result = images.decode(True, tmp_path, lambda line: None)
    ratios = {figure.what: figure.target for figure in result.figures}
    assert ratios["Lockstep / Pillow, one core"] == images.DECODING_TARGET
    for name in (images.OPENCV, images.SIMPLEJPEG):
        assert ratios[f"{name} / Pillow, decoded and cut"] is None
        assert name in {series.what for series in result.measured}
    assert all(data.startswith(b"\xff\xd8") for data in decoded)
    assert len(decoded) == 6, "every file once to warm up, and once on the clock"


@pytest.mark.usefixtures("tars")
def test_simplejpeg_is_left_out_where_it_is_not_installed(tmp_path: Path) -> None:
    result = images.decode(True, tmp_path, lambda line: None)
    assert images.OPENCV in {series.what for series in result.measured}
    assert images.SIMPLEJPEG not in {series.what for series in result.measured}
    assert "simplejpeg was not installed." in result.notes


def test_opencv_decodes_all_of_a_file() -> None:
    file = io.BytesIO()
    Image.new("RGB", (640, 480), (10, 200, 30)).save(file, "JPEG")
    pixels = images.bare_opencv((file.getvalue(), Window(0, 0, 8, 8)))
    assert np.asarray(pixels).shape == (480, 640, 3)
