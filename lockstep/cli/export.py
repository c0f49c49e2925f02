"""The command `lockstep export`."""

from __future__ import annotations

import argparse

from lockstep.cli import options


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("run", metavar="RUN", help=options.RUN_HELP)
    command.add_argument(
        "--to",
        choices=("torch", "safetensors", "onnx"),
        required=True,
        help="a state_dict (.pt), the same with class names and normalisation, or a graph that runs without PyTorch",
    )
    command.add_argument("--out", metavar="FILE", help="where to; default: <run>.pt, .safetensors or .onnx here")
    options.checkpoint_option(command)


def export(parsed: argparse.Namespace) -> int:
    from lockstep import progress
    from lockstep.export import export as write

    print(write(parsed.run, parsed.to, out=parsed.out, checkpoint=parsed.checkpoint, display=progress.display()))
    return 0
