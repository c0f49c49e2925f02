"""What the kernel says of a process: peak memory, and processor time to the nanosecond."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil


def peak_memory_mib(pid: int | str) -> float:
    """The most memory that a process ever had resident (VmHWM); 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


def processor_seconds(pid: int) -> float:
    """Processor time of all living threads. psutil's figures come in hundredths, too coarse for a supervisor."""
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(path.read_text().split()[0])
        except OSError:
            continue  # a thread that has just ended
    return total / 1e9


@dataclass
class Watch:
    """Samples of a `lockstep train` process and its workers, taken while it runs."""

    times: list[float] = field(default_factory=list)
    """Seconds since 1970, the clock of the rows in metrics.jsonl."""
    processor: list[float] = field(default_factory=list)
    """Processor seconds of the supervisor until then."""
    peaks: list[float] = field(default_factory=list)
    """Peak memory of the largest worker until then, in MiB."""

    def sample(self, pid: int) -> None:
        try:
            workers = [child.pid for child in psutil.Process(pid).children()]
        except psutil.NoSuchProcess:
            return
        seconds = processor_seconds(pid)
        if seconds == 0.0:  # it has ended and only waits to be collected
            return
        peak = max((peak_memory_mib(worker) for worker in workers), default=0.0)
        self.times.append(time.time())
        self.processor.append(seconds)
        self.peaks.append(max(peak, self.peaks[-1] if self.peaks else 0.0))

    def processor_between(self, start: float, end: float) -> float:
        """Processor seconds of the supervisor between two times, interpolated."""
        return self._processor_at(end) - self._processor_at(start)

    def peak_until(self, end: float) -> float:
        """Peak memory of the largest worker at a time; at the first sample after it, so never too little."""
        return next((peak for at, peak in zip(self.times, self.peaks, strict=True) if at >= end), self.peak)

    @property
    def peak(self) -> float:
        return self.peaks[-1] if self.peaks else 0.0

    def _processor_at(self, at: float) -> float:
        samples = list(zip(self.times, self.processor, strict=True))
        before = [sample for sample in samples if sample[0] <= at]
        after = [sample for sample in samples if sample[0] > at]
        if not before or not after:
            return (before[-1] if before else after[0])[1]
        (t0, p0), (t1, p1) = before[-1], after[0]
        return p0 + (p1 - p0) * (at - t0) / (t1 - t0)
