"""What workers say, as events for the machine. Everything that comes from the network is checked here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lockstep.evaluate import LeafResult
from lockstep.histogram import Histogram
from lockstep.spans import Event
from lockstep.supervisor import events as e
from lockstep.supervisor.verification import Replay, Report
from lockstep.wire import Message

MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


def event(worker: int, message: Message) -> e.Event | None:
    """The event that a message means, None if it means none; one of MALFORMED if it is not as it must be."""
    read = READERS.get(message["type"])
    return None if read is None else read(worker, message)


def _evaluation(worker: int, m: Message) -> e.Event:
    confusion = tuple((int(label), int(guess), int(count)) for label, guess, count in m.get("confusion", ()))
    top1, top5 = _optional(m.get("top1")), _optional(m.get("top5"))
    result = LeafResult(int(m["count"]), top1, top5, float(m["loss"]), confusion, _sums(m.get("sums", ())))
    if confusion and (sum(count for _, _, count in confusion) != result.count or min(map(min, confusion)) < 0):
        raise ValueError("the confusion table does not count every example once")
    return e.Evaluation(worker, int(m["step"]), int(m["leaf"]), result, _optional(m.get("leaves")))


def _sums(pairs: Any) -> tuple[tuple[str, int | float], ...]:
    return tuple((str(name), value if isinstance(value, int) else float(value)) for name, value in pairs)


def _report(m: Message) -> Report:
    return Report(str(m["state"]), {int(leaf): str(digest) for leaf, digest in m["leaves"].items()})


def _answer(worker: int, m: Message) -> e.Event:
    answer = Replay(str(m["state"]), _optional(m["diverged"])) if "diverged" in m else _report(m)
    return e.Answer(worker, int(m["number"]), int(m["step"]), answer)


def _heartbeat(worker: int, m: Message) -> e.Event:
    seconds = None if m["leaf_seconds"] is None else float(m["leaf_seconds"])
    return e.Heartbeat(worker, int(m["step"]), _optional(m["leaf"]), str(m["phase"]), seconds)


def histograms(m: Message) -> dict[str, Histogram]:
    return {str(tag): Histogram.from_plain(plain) for tag, plain in m["histograms"].items()}


def spans(m: Message) -> list[Event]:
    return [(str(name), float(start), float(seconds)) for name, start, seconds in m["events"]]


def _optional(value: Any) -> int | None:
    return None if value is None else int(value)


READERS: dict[str, Callable[[int, Message], e.Event]] = {
    "promised": lambda w, m: e.Promised(w, int(m["number"]), int(m["step"]), tuple(map(int, m["held"]))),
    "heartbeat": _heartbeat,
    "lost": lambda w, m: e.LostPeer(w, int(m["number"]), _optional(m["peer"])),
    "outrun": lambda w, m: e.Outrun(w, int(m["number"])),
    "evaluation": _evaluation,
    "verify": lambda w, m: e.Verify(w, int(m["number"]), int(m["step"]), _report(m)),
    "answer": _answer,
    "delay": lambda w, m: e.Delay(w, int(m["number"]), int(m["step"]), float(m["seconds"])),
    "checkpointed": lambda w, m: e.Checkpointed(
        int(m["step"]), str(m["name"]), str(m["digest"]), m["reason"], int(m["number"])
    ),
    "checkpoint_failed": lambda w, m: e.CheckpointFailed(int(m["step"]), str(m["error"]), m["reason"]),
    "error": lambda w, m: e.Raised(w, str(m["message"]), str(m["where"]), bool(m["user"])),
}
