"""Which of the signals that end a job, or a host's part in it, are listened to."""

from __future__ import annotations

import signal
from collections.abc import Iterable


def listened_to(numbers: Iterable[signal.Signals]) -> list[signal.Signals]:
    """All but a SIGHUP that is ignored already: who begins with `nohup` wants a logout to end nothing."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in numbers if not (is_ignored and number == signal.SIGHUP)]
