"""`python -m bench.showcase`: the pictures of README, from real runs: the demo's terminal, and its runs compared.

The demo runs in a terminal of its own (a pseudo-terminal), and what it leaves on the screen becomes `docs/demo.svg`.
Then `lockstep compare` draws its three runs in `docs/compare.png`, and its table takes the place of the one in README.
"""

from __future__ import annotations

import csv
import io
import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.marked import replaced
from bench.results import ROOT
from bench.sidebyside import markdown
from lockstep.report.comparison import time_to

COLUMNS, LINES = 100, 40
RUNS = ("demo-1-worker-1", "demo-2-workers-1", "demo-2-workers-one-killed-1")
SKIPPED = ("tensorboard --logdir_spec", "Check it yourself", "Curves of the runs")
"""Lines too long for a picture."""


def main() -> None:
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ.update(COLUMNS=str(COLUMNS), LINES=str(LINES), TERM="xterm-256color")
    with tempfile.TemporaryDirectory(prefix="lockstep-showcase-") as scratch:
        os.chdir(scratch)
        shown = record([sys.executable, "-m", "lockstep", "demo"])
        draw("$ lockstep demo\n" + screen(shown), ROOT / "docs" / "demo.svg")
        compare = [sys.executable, "-m", "lockstep", "compare", *RUNS, "--png", str(ROOT / "docs" / "compare.png")]
        subprocess.run(compare, check=True)
        figures = subprocess.run([*compare, "--csv"], check=True, capture_output=True, text=True).stdout
        readme = ROOT / "README.md"
        readme.write_text(with_table(readme.read_text(), figures))


def record(command: list[str]) -> str:
    """What a command writes to its terminal."""
    written = bytearray()

    def read(descriptor: int) -> bytes:
        data = os.read(descriptor, 4096)
        written.extend(data)
        return data

    status = pty.spawn(command, read)
    if status != 0:
        raise SystemExit(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return written.decode()


NAME = "bench.showcase"
"""Of the table in README."""


def with_table(readme: str, figures: str) -> str:
    """README with the figures of `lockstep compare --csv`."""
    runs = list(csv.DictReader(io.StringIO(figures)))
    target = float(runs[0]["target_top1"])
    head = ["run", "N", "steps/s", "images/s", "speed-up", "efficiency", "best top1", time_to(target), "MB/step"]
    rows = [[*head, "deaths", "digest"], *map(_row, runs)]
    return replaced(readme, NAME, markdown(rows))


def _row(run: dict[str, str]) -> list[str]:
    def number(name: str, form: str, factor: float = 1.0) -> str:
        return form.format(float(run[name]) * factor) if run[name] else ""

    return [
        run["run"],
        number("mean_workers", "{:.3g}"),
        number("steps_per_second", "{:.2f}"),
        number("images_per_second", "{:.0f}"),
        number("speed_up", "{:.2f}"),
        number("efficiency", "{:.0%}"),
        number("best_top1", "{:.2%}"),
        number("seconds_to_target", "{:.1f}"),
        number("bytes_per_step", "{:.3f}", 1e-6),
        "" if run["deaths"] == "0" else run["deaths"],
        run["digest"][:12],
    ]


def screen(written: str) -> str:
    """What is left of it when progress bars have drawn over themselves: the codes that go up a line and clear one."""
    lines, row, is_at_start = [""], 0, False
    for piece in PIECES.findall(written):
        if piece == "\n":
            row, is_at_start = row + 1, False
            lines += [""] * (row == len(lines))
        elif piece == "\r":
            is_at_start = True
        elif piece == UP:
            row = max(0, row - 1)
        elif piece == CLEAR:
            lines[row] = ""
        elif piece.startswith("\x1b[?"):
            pass  # hides or shows the cursor
        else:
            lines[row] = piece if is_at_start else lines[row] + piece
            is_at_start = False
    return "\n".join(line for line in lines if not any(word in line for word in SKIPPED)).rstrip()


UP, CLEAR = "\x1b[1A", "\x1b[2K"
PIECES = re.compile(r"\x1b\[\?\d+[hl]|\n|\r|\x1b\[1A|\x1b\[2K|(?:\x1b\[[0-9;]*m|[^\n\r\x1b])+")
"""Of what is written; a text keeps the codes of its colours."""


def draw(ansi: str, path: Path) -> None:
    """As SVG, with whatever font of fixed width there is: nothing is fetched when it is shown."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(ansi))
    text = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="lockstep demo"), flags=re.DOTALL)
    path.write_text(re.sub(r"^\s+$", "", text, flags=re.MULTILINE))


if __name__ == "__main__":
    main()
