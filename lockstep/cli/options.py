"""The options that commands share, and the request that is made of them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from lockstep.engines import ENGINES
from lockstep.strategies import STRATEGIES

if TYPE_CHECKING:
    from lockstep.request import Request

RUN_HELP = "a name, a path, `last`, or `last~1` for the one before"
RECIPE_HELP = (
    "a built-in recipe (see `lockstep recipes`), file.py:function, module:function, a .toml or .json file, or a run's "
    "directory"
)


def train_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("recipe", metavar="RECIPE", help=RECIPE_HELP)
    recipe_options(command)
    run_options(command)


def run_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--run", metavar="NAME|DIR", help="name below runs/, or a directory; <recipe>-<n> by default")
    command.add_argument("--resume", action="store_true", help="continue the run if it exists, so that a rerun is safe")
    job_options(command)
    profile_option(command)


def checkpoint_option(command: argparse.ArgumentParser) -> None:
    command.add_argument("--checkpoint", metavar="best|last|STEP", help="which one of the run; default: the newest")


def length_options(command: argparse.ArgumentParser) -> None:
    length = command.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, metavar="K", help="length in steps")
    length.add_argument("--epochs", type=float, metavar="E", help="length in epochs: ceil(E x size / batch) steps")
    command.add_argument("--stop-at", type=int, metavar="K", help="end after K steps; schedules do not see it")


def place_options(command: argparse.ArgumentParser) -> None:
    """Of a run that goes on: its data stay the same, but may lie elsewhere."""
    command.add_argument("--data", metavar="PATH", help="where the run's data lie now; other data are refused")
    command.add_argument("--eval-data", metavar="PATH", help="where its test set lies now")
    command.add_argument("--labels", dest="label_path", metavar="PATH|URL", help="where its label file lies now")
    command.add_argument("--eval-labels", dest="eval_label_path", metavar="PATH|URL", help="that of the test set")
    access_options(command)


def access_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--endpoint-url", metavar="URL", help="another server that speaks S3")
    command.add_argument("--anonymous", action="store_true", default=None, help="read from S3 without credentials")


def recipe_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--data",
        metavar="PATH|NAME",
        help="directory, archive, files or glob of the data, `shapes` or `synthetic`, or file.py:function",
    )
    command.add_argument("--eval-data", metavar="PATH", help="the test set, if it does not lie beside the training set")
    command.add_argument(
        "--labels", dest="label_path", metavar="PATH|URL", help="lines of `name label`, if the images do not say it"
    )
    command.add_argument("--eval-labels", dest="eval_label_path", metavar="PATH|URL", help="the same for the test set")
    command.add_argument("--key-prefix", metavar="TEXT", help="of many shards, those whose names begin so")
    access_options(command)
    command.add_argument(
        "--hold-out", type=int, metavar="N", help="test on N samples kept out of the training set, for tuning"
    )
    command.add_argument("--model", metavar="NAME", help="another model: a known name, timm:NAME or module:function")
    command.add_argument("--init", metavar="FILE|RUN", help="weights to start from: safetensors, a state_dict, a run")
    command.add_argument("--leaves", type=int, metavar="V", help="parts of a batch, a power of two; changes the bits")
    command.add_argument("--batch-size", type=int, metavar="B", help="samples per step, over all workers")
    command.add_argument("--lr", type=float, metavar="X", help="learning rate")
    length_options(command)
    command.add_argument(
        "--scale",
        type=float,
        metavar="S",
        help="batch and learning rate times S, steps divided by S; see docs/recipes.md",
    )
    command.add_argument(
        "--precision", choices=("fp32", "bf16", "tf32"), help="of products and convolutions; changes the bits"
    )
    command.add_argument(
        "--compile", action=argparse.BooleanOptionalAction, default=None, help="compile the model; changes the bits"
    )
    command.add_argument(
        "--channels-last",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="memory format of images and kernels; changes the bits",
    )
    command.add_argument("--seed", type=int, metavar="S", help="seed of weights, order and augmentation")
    command.add_argument("--threads", type=int, metavar="T", help="threads that compute a leaf; changes the bits")
    command.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: a GPU if there is one"
    )
    command.add_argument(
        "--set", dest="settings", metavar="KEY=VALUE", action="append", default=[], help="any key of `lockstep config`"
    )


def job_options(command: argparse.ArgumentParser) -> None:
    worker_options(command)
    _strategy_options(command)
    command.add_argument(
        "--verify-every", type=int, metavar="K", help="look for silent corruption every K steps (default: never)"
    )
    command.add_argument(
        "--evaluator",
        nargs="?",
        const="own",
        choices=("own", "shared"),
        help="a process beside the workers evaluates; on Slurm it has a node of its own, or shares one",
    )
    command.add_argument(
        "--logger",
        dest="loggers",
        metavar="NAME",
        action="append",
        help="also tell the figures to csv, wandb or mlflow; may be repeated",
    )
    command.add_argument(
        "--histograms-every", type=int, metavar="K", help="steps between two histograms (default: at evaluations)"
    )


def worker_options(command: argparse.ArgumentParser) -> None:
    """Of a job that trains, and of one that only evaluates."""
    command.add_argument(
        "--workers", type=int, metavar="N", help="processes that share the leaves; never changes the bits"
    )
    _engine_options(command)
    command.add_argument(
        "--replace", action=argparse.BooleanOptionalAction, default=True, help="start another worker for one that died"
    )
    command.add_argument(
        "--patience", type=float, default=10.0, metavar="S", help="seconds without progress until a worker is expelled"
    )
    command.add_argument(
        "--allow-mixed", action="store_true", help="let in workers whose arithmetic differs; the digest then varies"
    )
    command.add_argument("--no-tensorboard", action="store_true", help="write no TensorBoard events")


def profile_option(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--profile", action="store_true", help="show where the time of a step goes, and write a trace for Perfetto"
    )


def _engine_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--engine", metavar="NAME", help=f"where workers run: {', '.join(ENGINES)}")
    command.add_argument("--address", metavar="HOST:PORT", help="`ray`: the cluster to join; auto for a running one")
    placement = command.add_mutually_exclusive_group()
    for choice, what in (("spread", "many"), ("pack", "few")):
        placement.add_argument(
            f"--{choice}",
            dest="placement",
            action="store_const",
            const=choice,
            help=f"`ray`: on as {what} nodes as possible",
        )
    command.add_argument("--cpus-per-worker", type=int, metavar="C", help="cores that a scheduler reserves for each")
    command.add_argument(
        "--listen",
        metavar="ADDRESS[:PORT]",
        help="let other hosts take part; shows what to type there: `lockstep join`",
    )
    command.add_argument(
        "--min-workers", type=int, metavar="M", help="begin, and go on, with M workers while there is no room for more"
    )


def _strategy_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--strategy", metavar="NAME", help=f"how workers agree: {', '.join(STRATEGIES)}")
    command.add_argument("--servers", type=int, metavar="S", help="parameter servers of `server` and `async`")
    command.add_argument(
        "--backup", type=int, metavar="B", help="`server`: late leaves computed by others too, per step"
    )
    command.add_argument(
        "--late", choices=("wait", "drop"), help="`server`: what becomes of late leaves; drop changes the result"
    )
    command.add_argument("--wait-for", type=int, metavar="K", help="with --late drop: leaves that a step waits for")
    command.add_argument("--local-steps", type=int, metavar="K", help="`averaging`: steps between two averages")
    command.add_argument("--outer", choices=("none", "nesterov"), help="`averaging`: what is done with the average")
    command.add_argument("--max-staleness", type=int, metavar="M", help="`async`: steps that workers may be apart")


def request(parsed: argparse.Namespace) -> Request:
    from dataclasses import fields

    from lockstep.request import Request

    given = {key: value for key, value in vars(parsed).items() if key in {field.name for field in fields(Request)}}
    return Request(**given, tensorboard=False if getattr(parsed, "no_tensorboard", False) else None)
