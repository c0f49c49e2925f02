"""Large images: how fast they are decoded next to others. Whether training waits for them is in `waiting.py`.

Both need real images: tars of JPEGs and a file of labels beside them, in the directory that `--images` names.
"""

from __future__ import annotations

import io
import os
import tarfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from bench.peers.converted import convert
from bench.plan import is_there
from bench.ratio import MIN_ROUNDS, Target, paired
from bench.results import Figure, Result
from bench.rounds import Contestant, Say, interleaved
from lockstep.config import Data
from lockstep.data import decode as decoding
from lockstep.data import framing
from lockstep.data.decode import Pixels, Window
from lockstep.data.source import in_order

VARIABLE = "LOCKSTEP_BENCH_IMAGES"
"""Where the directory is kept, for processes of the benchmark."""
SIDE = 224
DATA = Data(framing="random-resized", side=SIDE)
CORES = 2

OURS, PILLOW = "Lockstep", "Pillow"
LOADER, WEBDATASET = "torch DataLoader + Pillow, one process", "WebDataset, one process"
LITDATA = "LitData + Pillow, one process"
THREADS, PROCESSES = f"Lockstep, {CORES} threads", f"Lockstep, {CORES} processes"

DECODING_TARGET = Target(1.8, at_least=True)

OPENCV, SIMPLEJPEG = "OpenCV, the whole file decoded and no more", "simplejpeg, the whole file decoded and no more"
"""The floor: what a decoder of JPEGs takes before anything is cut."""

Cut = tuple[bytes, Window]


def directory() -> Path:
    return Path(os.environ[VARIABLE])


def shards() -> list[Path]:
    found = sorted(directory().rglob("*.tar"))
    if not found:
        raise SystemExit(f"there is no tar below {directory()}: --images takes a directory with tars of JPEGs")
    return found


def read_files(most: int) -> list[bytes]:
    """JPEGs of many shards, in memory: reading them is another question."""
    found: list[bytes] = []
    for path in shards():
        with tarfile.open(path) as tar:
            for member in tar:
                if member.isfile() and (file := tar.extractfile(member)) is not None and len(found) < most:
                    found.append(file.read())
    return found


def cuts(files: list[bytes]) -> list[Cut]:
    """Every contestant takes the same window of a file."""
    frames = framing.training_frames(DATA, 0, in_order(0, len(files)))
    sizes = [Image.open(io.BytesIO(data)).size for data in files]
    return [(data, frame(*size)) for data, frame, size in zip(files, frames, sizes, strict=True)]


def ours(cut: Cut) -> Pixels:
    data, window = cut
    return decoding.cut(data, lambda width, height: window, SIDE)


def pillow(cut: Cut) -> Pixels:
    data, w = cut
    box = (w.left, w.top, w.left + w.width, w.top + w.height)
    image = Image.open(io.BytesIO(data)).convert("RGB")
    return np.array(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=box))


def bare_opencv(cut: Cut) -> object:
    import cv2

    return cv2.imdecode(np.frombuffer(cut[0], dtype=np.uint8), cv2.IMREAD_COLOR)


def bare_simplejpeg(cut: Cut) -> object:
    import simplejpeg  # type: ignore[import-not-found, import-untyped, unused-ignore]

    return simplejpeg.decode_jpeg(cut[0])


class Files:
    """A data set for a DataLoader."""

    def __init__(self, cuts: list[Cut]) -> None:
        self._cuts = cuts

    def __len__(self) -> int:
        return len(self._cuts)

    def __getitem__(self, index: int) -> Pixels:
        return pillow(self._cuts[index])


def decode(quick: bool, scratch: Path, say: Say) -> Result:
    """Decode and random-resized crop to 224."""
    rounds, wanted = (1, cuts(read_files(40))) if quick else (MIN_ROUNDS, cuts(read_files(300)))
    runs: dict[str, Contestant] = {
        OURS: _timed(lambda: [ours(cut) for cut in wanted], len(wanted)),
        PILLOW: _timed(lambda: [pillow(cut) for cut in wanted], len(wanted)),
        LOADER: _loader(wanted),
        THREADS: _threads(wanted),
        PROCESSES: _processes(wanted),
        OPENCV: _timed(lambda: [bare_opencv(cut) for cut in wanted], len(wanted)),
    }
    notes = [
        f"One process and one core each but for those with {CORES}. All cut the same windows, but WebDataset, whose "
        "order is another, one of the same shape. Who decodes whole files and no more shows what is left for cropping "
        "and scaling; Lockstep decodes at a smaller scale where the window is large enough."
    ]
    if is_there("simplejpeg"):
        runs[SIMPLEJPEG] = _timed(lambda: [bare_simplejpeg(cut) for cut in wanted], len(wanted))
    else:
        notes.append("simplejpeg was not installed.")
    if is_there("webdataset"):
        runs[WEBDATASET] = _webdataset(len(wanted))
    else:
        notes.append("WebDataset was not installed.")
    if is_there("litdata"):
        runs[LITDATA] = _litdata(wanted, scratch / "converted")
        notes.append("LitData reads chunks that it had made of the files before the clock started.")
    else:
        notes.append("LitData was not installed.")
    for run in runs.values():
        run(scratch)  # imports, and pages of memory
    samples = interleaved(runs, rounds, scratch, say)
    figures = [Figure("Lockstep / Pillow, one core", "ratio", paired(samples[OURS], samples[PILLOW]), DECODING_TARGET)]
    figures += [
        Figure(f"Lockstep / {name}", "ratio", paired(samples[OURS], samples[name]))
        for name in (LOADER, WEBDATASET, LITDATA)
        if name in samples
    ]
    figures.append(Figure("threads / processes", "ratio", paired(samples[THREADS], samples[PROCESSES])))
    figures += [
        Figure(f"{name} / Pillow, decoded and cut", "ratio", paired(samples[name], samples[PILLOW]))
        for name in (OPENCV, SIMPLEJPEG)
        if name in samples
    ]
    return Result(
        name="decode",
        question="Real ImageNet files, decoded and cut at random to 224 x 224: how many a second?",
        figures=figures,
        measured=[Figure(name, "images/s", values) for name, values in samples.items()],
        notes=notes,
    )


def _timed(work: Callable[[], object], count: int) -> Contestant:
    def run(path: Path) -> float:
        started = time.perf_counter()
        work()
        return count / (time.perf_counter() - started)

    return run


def _loader(wanted: list[Cut]) -> Contestant:
    """Its process is started before the clock, and lives as long as the benchmark."""
    from torch.utils.data import DataLoader

    loader: Any = DataLoader(Files(wanted), batch_size=32, num_workers=1, persistent_workers=True)  # type: ignore[arg-type]
    return _timed(lambda: [batch.shape for batch in loader], len(wanted))


def _threads(wanted: list[Cut]) -> Contestant:
    pool = ThreadPoolExecutor(CORES)
    return _timed(lambda: list(pool.map(ours, wanted)), len(wanted))


def _processes(wanted: list[Cut]) -> Contestant:
    """What the workers of a pool send back is pickled, as it is in a DataLoader without shared memory."""
    pool = get_context("spawn").Pool(CORES)
    return _timed(lambda: pool.map(ours, wanted, chunksize=16), len(wanted))


def _webdataset(count: int) -> Contestant:
    """As its users decode: by Pillow, and a crop of torchvision's shape on top."""
    import webdataset  # type: ignore[import-not-found, import-untyped, unused-ignore]

    def images() -> Iterator[object]:
        urls = [str(path) for path in shards()]
        pipeline = webdataset.WebDataset(urls, shardshuffle=False, empty_check=False).decode("pil")
        for number, sample in enumerate(pipeline):
            if number >= count:
                return
            image = next(value for key, value in sample.items() if key.lower() in ("jpeg", "jpg"))
            yield frame_like_ours(image)

    return _timed(lambda: list(images()), count)


def _litdata(wanted: list[Cut], path: Path) -> Contestant:
    read = convert([data for data, _ in wanted], path)
    windows = [window for _, window in wanted]
    return _timed(lambda: [pillow(cut) for cut in zip(read(), windows, strict=True)], len(wanted))


def frame_like_ours(image: Image.Image) -> Pixels:
    """A crop of torchvision's shape, by Pillow."""
    window = framing.random_resized([0.5] * framing.NUM_WORDS, *image.size)
    box = (window.left, window.top, window.left + window.width, window.top + window.height)
    return np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=box))
