"""Decoding: every kind of image as Pillow shows it, right side up; half a file is known for what it is."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageOps

from lockstep.data import decode
from lockstep.data.decode import Broken, Window, scale_for
from lockstep.errors import UserError
from tests.conftest import REPOSITORY
from tests.data import pictures

KINDS = {kind: pictures.of_kind(kind) for kind in pictures.KINDS}


def by_pillow(data: bytes, window: Window | None, side: int) -> npt.NDArray[np.uint8]:
    with Image.open(io.BytesIO(data)) as image:
        upright = ImageOps.exif_transpose(image)
        if upright.mode.startswith("I"):
            upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
        if upright.has_transparency_data:
            upright = Image.alpha_composite(Image.new("RGBA", upright.size, "white"), upright.convert("RGBA"))
        w = window or Window(0, 0, *upright.size)
        box = (w.left, w.top, w.left + w.width, w.top + w.height)
        return np.asarray(upright.convert("RGB").resize((side, side), Image.Resampling.BILINEAR, box=box))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", [20, 40, 100])
def test_every_kind_is_shown_as_by_pillow(kind: str, side: int) -> None:
    """F18: at reduced, equal and larger size; in RGB, whatever the file is in."""
    found = decode.square(KINDS[kind], side)
    assert found.shape == (side, side, 3)
    assert found.dtype == np.uint8
    assert pictures.difference(found, by_pillow(KINDS[kind], None, side)) < 3


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_window_is_that_of_the_upright_image(orientation: int) -> None:
    asked: list[tuple[int, int]] = []
    window = Window(10, 20, 40, 50)

    def choose(width: int, height: int) -> Window:
        asked.append((width, height))
        return window

    data = KINDS[f"turned {orientation}"]
    found = decode.cut(data, choose, 25)
    assert asked == [(120, 90) if orientation < 5 else (90, 120)]
    assert pictures.difference(found, by_pillow(data, window, 25)) < 3


@pytest.mark.parametrize(
    ("window", "scale"), [((64, 64), 1), ((127, 300), 1), ((128, 128), 2), ((300, 256), 4), ((5000, 5000), 8)]
)
def test_the_scale_leaves_as_many_pixels_as_are_wanted(window: tuple[int, int], scale: int) -> None:
    assert scale_for(Window(0, 0, *window), 64) == scale


def test_windows_of_a_reduced_image_lie_where_they_should() -> None:
    """A sharp edge at x = 400 is found at the same place at every scale."""
    pixels = np.zeros((600, 800, 3), dtype=np.uint8)
    pixels[:, 400:] = 255
    data = pictures.encoded(Image.fromarray(pixels), subsampling=0)
    for side in (300, 150, 75, 30):
        found = decode.cut(data, lambda width, height: Window(200, 100, 400, 400), side)
        edge = int(np.argmax(found[side // 2, :, 0] > 127))
        assert abs(edge - side // 2) <= 1


BROKEN = {
    "nothing": b"",
    "no image": b"this is no image" * 10,
    "only a header": KINDS["colour"][:200],
    "half": KINDS["colour"][: len(KINDS["colour"]) // 2],
    "half and zeros": KINDS["colour"][: len(KINDS["colour"]) // 2] + bytes(len(KINDS["colour"]) // 2),
    "without its last bytes": KINDS["colour"][:-40],
    "half a progressive one": KINDS["progressive"][: len(KINDS["progressive"]) // 2],
    "half a PNG": KINDS["png"][: len(KINDS["png"]) // 2],
    "half a CMYK": KINDS["cmyk"][: len(KINDS["cmyk"]) // 2],
    "60,000 x 60,000": pictures.claiming(KINDS["colour"], 60_000, 60_000),
    "15,000 x 10,000": pictures.claiming(KINDS["colour"], 15_000, 10_000),
}


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_image_is_known_as_one(name: str) -> None:
    """Also half a file, of which some versions of OpenCV make half an image."""
    with pytest.raises(Broken) as found:
        decode.square(BROKEN[name], 32)
    assert str(found.value)
    assert "0x" not in str(found.value), "a reason is the same in every process"


@pytest.mark.parametrize("kind", ["colour", "progressive", "grey"])
def test_half_a_jpeg_is_not_left_to_opencv(kind: str) -> None:
    """Version 5 refuses it, others have made the rest of it grey: Pillow decides."""
    whole = KINDS[kind]
    with Image.open(io.BytesIO(whole)) as image:
        assert decode._suits_opencv(image, whole)
        assert not decode._suits_opencv(image, whole[:-2])


MEMORY = """
import resource, sys
from lockstep.data import decode
decode.square(open(sys.argv[2], "rb").read(), 8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decode.square(open(sys.argv[1], "rb").read(), 32)
except decode.Broken:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_huge_image_costs_no_memory(tmp_path: Path) -> None:
    huge, small = tmp_path / "huge.jpg", tmp_path / "small.jpg"
    huge.write_bytes(BROKEN["60,000 x 60,000"])
    small.write_bytes(KINDS["colour"])
    done = subprocess.run([sys.executable, "-c", MEMORY, huge, small], capture_output=True, text=True, timeout=60)
    assert int(done.stdout) < 8 * 1024, done.stderr  # KiB


def test_many_threads_give_the_same_bits() -> None:
    """OpenCV uses no threads of its own, so that a worker's threads are those that the recipe says."""
    alone = {kind: decode.square(data, 50) for kind, data in KINDS.items()}
    found: list[bool] = []

    def work() -> None:
        found.append(all((decode.square(data, 50) == alone[kind]).all() for kind, data in KINDS.items()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4
    assert decode._cv2().getNumThreads() <= 1


BITS = """
import hashlib
from lockstep.data import decode
from tests.data import pictures
files = [pictures.of_kind(kind, 301, 257) for kind in ("colour", "progressive", "grey", "without subsampling")]
total = hashlib.sha256()
for data in files:
    for side in (20, 75, 150, 222, 400):
        total.update(decode.square(data, side).tobytes())
print(total.hexdigest())
"""


def test_the_instructions_of_the_processor_do_not_count() -> None:
    """Decoding and scaling with all that this processor has, and with what every processor has."""
    none = {"OPENCV_CPU_DISABLE": "SSE4.1,SSE4.2,AVX,FP16,AVX2,AVX512-SKX", "JSIMD_FORCENONE": "1"}
    found = [
        subprocess.run(
            [sys.executable, "-c", BITS], cwd=REPOSITORY, env={**os.environ, **more}, capture_output=True, text=True
        )
        for more in ({}, none)
    ]
    assert len(found[0].stdout) == 65, found[0].stderr
    assert found[0].stdout == found[1].stdout


CONCURRENT = """
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import sys
from lockstep.data import decode
data = Path(sys.argv[1]).read_bytes()
with ThreadPoolExecutor(8) as pool:
    print(len(list(pool.map(lambda _: decode.square(data, 8), range(16)))))
"""


def test_the_first_images_may_come_to_many_threads_at_once(tmp_path: Path) -> None:
    """OpenCV's import fails if two threads do it."""
    (tmp_path / "one.jpg").write_bytes(KINDS["colour"])
    command = [sys.executable, "-c", CONCURRENT, str(tmp_path / "one.jpg")]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60).stdout == "16\n"


def test_without_opencv_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cv2", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'lockstep-train\[imagenet\]'"):
        decode.check_installed()
