"""The command `lockstep`. Parsing imports nothing heavy, so that `--help` is instant; commands import what they use."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from lockstep import __version__
from lockstep.cli import data, export, jobs, join, options, reports, submit
from lockstep.cli.arguments import Parser
from lockstep.errors import JobError, UserError

COMPARE_EXAMPLE = "lockstep compare demo-1-worker-1 demo-2-workers-1 --html compare.html"
DIFF_EXAMPLE = "lockstep diff demo-1-worker-1 demo-2-workers-1"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake is one sentence and exit code 2, a failed job exit code 1."""
    try:
        parsed = parser().parse_args(arguments)
        code: int = parsed.command(parsed)
        return code
    except UserError as error:
        print(f"lockstep: {error}", file=sys.stderr)
        return 2
    except JobError as error:
        print(f"lockstep: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone, as in `lockstep recipes | head -1`
        return 128 + signal.SIGPIPE


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="lockstep",
        description="Train image classifiers on any number of workers; the final weights do not depend on how many.",
        epilog="Start with: lockstep demo",
    )
    top.add_argument("--version", action="version", version=f"lockstep {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(name: str, function: Callable[[Any], int], summary: str, example: str) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=f"example: {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(command=function)
        return command

    train = add(
        "train", jobs.train, "train a recipe", "lockstep train resnet20-cifar10 --data shapes --workers 2 --steps 50"
    )
    options.train_options(train)

    launch = add(
        "launch",
        jobs.launch,
        "run a training script of your own on several workers",
        "lockstep launch --workers 2 script.py --lr 0.1",
    )
    options.run_options(launch)
    launch.add_argument("--stop-at", type=int, metavar="K", help="end after K steps, and go on with `lockstep resume`")
    launch.add_argument(
        "--set",
        dest="settings",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="checkpoints.* and log_every, as in `lockstep config`",
    )
    launch.add_argument("script", metavar="SCRIPT", help="a file that calls lockstep.job, see docs/own-loop.md")
    launch.add_argument("arguments", metavar="...", nargs=argparse.REMAINDER, help="its own arguments")

    submit.add_commands(
        add(
            "submit",
            submit.submit,
            "hand a training to a batch scheduler",
            "lockstep submit slurm demo --workers 2 --time 00:30:00",
        )
    )

    resume = add(
        "resume", jobs.resume, "continue a run from its newest good checkpoint", "lockstep resume last --workers 2"
    )
    resume.add_argument("run", metavar="RUN", help=options.RUN_HELP)
    options.length_options(resume)
    options.place_options(resume)
    options.job_options(resume)
    options.profile_option(resume)

    evaluate = add("evaluate", jobs.evaluate, "evaluate a checkpoint of a run, once", "lockstep evaluate last")
    evaluate.add_argument("run", metavar="RUN", help=options.RUN_HELP)
    evaluate.add_argument("--data", metavar="PATH|NAME", help="other data of the same kind")
    evaluate.add_argument("--eval-data", metavar="PATH", help="another test set")
    evaluate.add_argument("--hold-out", type=int, metavar="N", help="0 tests a tuned run on the test set after all")
    evaluate.add_argument(
        "--follow", action="store_true", help="evaluate every checkpoint as it appears, until the run is over"
    )
    options.checkpoint_option(evaluate)
    evaluate.add_argument("--per-class", action="store_true", help="the accuracy of every class, however many")
    evaluate.add_argument("--confusion", action="store_true", help="a matrix of which class was taken for which")
    evaluate.add_argument("--json", action="store_true", help="all figures as one JSON object")
    options.worker_options(evaluate)

    predict = add("predict", reports.predict, "say what is in pictures", "lockstep predict last cat.png dog.jpg")
    predict.add_argument("run", metavar="RUN", help=options.RUN_HELP)
    predict.add_argument("images", metavar="IMAGE", nargs="+", help="PNG, JPEG and other image files")
    predict.add_argument("--top", type=int, default=5, metavar="K", help="how many classes are shown (5)")
    options.checkpoint_option(predict)
    predict.add_argument("--json", action="store_true", help="one JSON object per image and line")
    predict.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: a GPU if there is one"
    )

    export.add_options(
        add("export", export.export, "write a trained model to a file for others", "lockstep export last --to torch")
    )

    join.add_options(
        add(
            "join",
            join.join,
            "take part in a run that listens on another host",
            "lockstep join 192.0.2.7:4000",
        )
    )

    stop = add("stop", jobs.stop, "end a running job with a checkpoint", "lockstep stop last")
    stop.add_argument("run", metavar="RUN", help=options.RUN_HELP)

    resize = add("resize", jobs.resize, "change the number of workers of a running job", "lockstep resize last 3")
    resize.add_argument("run", metavar="RUN", help=options.RUN_HELP)
    resize.add_argument("workers", type=int, metavar="N", help="processes that share the leaves from now on")

    digest = add("digest", reports.digest, "print the SHA-256 of weights and buffers", "lockstep digest last")
    digest.add_argument(
        "target", metavar="RUN|CHECKPOINT", help="a run (its newest checkpoint), or a checkpoint's directory"
    )

    runs = add("runs", reports.runs, "list the runs, and what deaths and joins have cost them", "lockstep runs")
    runs.add_argument("--json", action="store_true", help="one JSON object per run and line")
    runs.add_argument("--delete", metavar="RUN", nargs="+", help="delete these runs, with everything in them")
    runs.add_argument("--yes", action="store_true", help="delete without asking")

    compare = add(
        "compare", reports.compare, "show runs next to each other: speed, accuracy, bytes, deaths", COMPARE_EXAMPLE
    )
    compare.add_argument("runs", metavar="RUN", nargs="+", help=options.RUN_HELP)
    compare.add_argument("--top1", type=float, metavar="X", help="show the time to this accuracy, such as 0.9")
    compare.add_argument("--html", metavar="FILE", help="also write a page with curves, which needs no network")
    compare.add_argument("--png", metavar="FILE", help="also write a picture of the curves")
    compare.add_argument("--csv", action="store_true", help="print a line of comma-separated figures for every run")

    diff = add("diff", reports.diff, "find the step and the tensor in which two runs part, and why", DIFF_EXAMPLE)
    diff.add_argument("first", metavar="RUN", help=options.RUN_HELP)
    diff.add_argument("second", metavar="RUN", help="the other one")
    diff.add_argument("--recorded", action="store_true", help="only compare what was recorded, and do no step again")
    diff.add_argument("--json", action="store_true", help="one JSON object")

    recipes = add("recipes", reports.recipes, "list the built-in recipes, or explain one", "lockstep recipes demo")
    recipes.add_argument("recipe", metavar="RECIPE", nargs="?", help=options.RECIPE_HELP)
    recipes.add_argument("--json", action="store_true", help="one JSON object per recipe and line")

    config = add(
        "config", reports.config, "print the configuration that a recipe resolves to", "lockstep config demo --lr 0.2"
    )
    config.add_argument("recipe", metavar="RECIPE", help=options.RECIPE_HELP)
    options.recipe_options(config)

    data.add_commands(
        add(
            "data",
            data.check_path,
            "get data sets, and look at what a path holds",
            "lockstep data get cifar10 data",
        )
    )
    doctor = add(
        "doctor", reports.doctor, "say whether this machine is fit for training, and what to do", "lockstep doctor"
    )
    doctor.add_argument("--quick", action="store_true", help="without the self-test, which trains for some seconds")
    doctor.add_argument("--json", action="store_true", help="one JSON object with all findings")

    demo = add(
        "demo",
        jobs.demo,
        "train the demo with 1 worker, 2 workers, and a killed one, and compare the digests",
        "lockstep demo",
    )
    demo.add_argument("--steps", type=int, metavar="K", help="a shorter demo, for tests")
    return top
