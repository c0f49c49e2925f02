"""Large images: how fast they are decoded next to others, and whether training waits for them.

Both need real images: tars of JPEGs and a file of labels beside them, in the directory that `--images` names.
"""

from __future__ import annotations

import importlib.util
import io
import os
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from bench import contestants
from bench.peers.converted import convert
from bench.ratio import MIN_ROUNDS, Target, paired
from bench.results import Figure, Result
from bench.rounds import Contestant, Say, interleaved
from lockstep import metrics
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

WAITING_TARGET = Target(0.02, at_least=False)
DECODING_TARGET = Target(1.8, at_least=True)

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
    }
    notes = [
        f"One process and one core each but for those with {CORES}. All cut the same windows, but WebDataset, whose "
        "order is another, one of the same shape."
    ]
    if importlib.util.find_spec("webdataset") is not None:
        runs[WEBDATASET] = _webdataset(len(wanted))
    else:
        notes.append("WebDataset was not installed.")
    if importlib.util.find_spec("litdata") is not None:
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


def imagenet_waiting(quick: bool, scratch: Path, say: Say) -> Result:
    """ResNet-18 at 224 from tars of this host, two workers: what of a step is waiting for data in the second epoch."""
    rounds = 1 if quick else MIN_ROUNDS
    shares: list[float] = []
    speeds: list[float] = []
    for number in range(rounds):
        rows = _train(scratch / f"round{number}", quick)
        shares.append(waiting_share(rows))
        speeds.append(float(np.median([row["images_per_second"] for row in rows])))
        say(f"round {number + 1}/{rounds}: {shares[-1]:.2%} of a step is waiting, {speeds[-1]:.1f} images/s")
    return Result(
        name="imagenet-waiting",
        question="ResNet-18 at 224 x 224 with two workers, real images in tars: what share of a step does the first "
        "worker wait for data, in epoch 2?",
        figures=[Figure("waiting for data", "share", shares, WAITING_TARGET)],
        measured=[Figure("training", "images/s", speeds)],
    )


def waiting_share(rows: list[metrics.Row]) -> float:
    spans = [row["spans"] for row in rows]
    return float(sum(one.get("data", 0.0) for one in spans) / sum(sum(one.values()) for one in spans))


def _train(path: Path, quick: bool) -> list[metrics.Row]:
    """The rows of the second epoch."""
    batch, leaves, side = (32, 4, 224) if not quick else (16, 2, 64)
    path.mkdir(parents=True)
    command = [sys.executable, "-m", "lockstep", "train", "imagenet-resnet50-modern", "--data", str(shards()[0].parent)]
    command += [option for file in sorted(directory().rglob("train.txt"))[:1] for option in ("--labels", str(file))]
    command += ["--set", "model.depth=18", "--set", f"data.side={side}", "--hold-out", "20", "--workers", "2"]
    command += ["--batch-size", str(batch), "--leaves", str(leaves), "--epochs", "2", "--set", "log_every=1"]
    command += ["--set", "evaluation.max_leaves=1", "--set", "evaluation.leaf_batch=10", "--run", str(path / "run")]
    started = time.time()
    with contestants.started_process(command, path / "log") as process:
        contestants.finish(process, path / "log", started)
    rows = [row for row in metrics.read(path / "run" / "metrics.jsonl") if row["kind"] == "train"]
    return rows[len(rows) // 2 :]
