"""The command `lockstep`. Parsing imports nothing heavy, so that `--help` is instant; commands import what they use."""

from __future__ import annotations

import argparse
import functools
import math
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lockstep import __version__, cli_export, cli_join, cli_reports, cli_submit, data_commands
from lockstep.arguments import Parser
from lockstep.engines import ENGINES
from lockstep.errors import JobError, UserError
from lockstep.strategies import STRATEGIES

if TYPE_CHECKING:
    from lockstep.api import Run
    from lockstep.request import Request

RUN_HELP = "a name, a path, `last`, or `last~1` for the one before"
COMPARE_EXAMPLE = "lockstep compare demo-1-worker-1 demo-2-workers-1 --html compare.html"
DIFF_EXAMPLE = "lockstep diff demo-1-worker-1 demo-2-workers-1"
RECIPE_HELP = (
    "a built-in recipe (see `lockstep recipes`), file.py:function, module:function, a .toml or .json file, or a run's "
    "directory"
)


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
        "train", _train, "train a recipe", "lockstep train resnet20-cifar10 --data shapes --workers 2 --steps 50"
    )
    _train_options(train)

    launch = add(
        "launch",
        _launch,
        "run a training script of your own on several workers",
        "lockstep launch --workers 2 script.py --lr 0.1",
    )
    _run_options(launch)
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

    submit = add(
        "submit",
        functools.partial(cli_submit.submit, _train_options, _request),
        "hand a training to a batch scheduler",
        "lockstep submit slurm demo --workers 2 --time 00:30:00",
    )
    cli_submit.add_commands(submit, _train_options)

    resume = add(
        "resume", _resume, "continue a run from its newest good checkpoint", "lockstep resume last --workers 2"
    )
    resume.add_argument("run", metavar="RUN", help=RUN_HELP)
    _length_options(resume)
    _job_options(resume)
    _profile_option(resume)

    evaluate = add("evaluate", _evaluate, "evaluate a checkpoint of a run, once", "lockstep evaluate last")
    evaluate.add_argument("run", metavar="RUN", help=RUN_HELP)
    evaluate.add_argument("--data", metavar="PATH|NAME", help="other data of the same kind")
    evaluate.add_argument("--eval-data", metavar="PATH", help="another test set")
    evaluate.add_argument("--hold-out", type=int, metavar="N", help="0 tests a tuned run on the test set after all")
    evaluate.add_argument(
        "--follow", action="store_true", help="evaluate every checkpoint as it appears, until the run is over"
    )
    _checkpoint_option(evaluate)
    evaluate.add_argument("--per-class", action="store_true", help="the accuracy of every class, however many")
    evaluate.add_argument("--confusion", action="store_true", help="a matrix of which class was taken for which")
    evaluate.add_argument("--json", action="store_true", help="all figures as one JSON object")
    _job_options(evaluate)

    predict = add("predict", cli_reports.predict, "say what is in pictures", "lockstep predict last cat.png dog.jpg")
    predict.add_argument("run", metavar="RUN", help=RUN_HELP)
    predict.add_argument("images", metavar="IMAGE", nargs="+", help="PNG, JPEG and other image files")
    predict.add_argument("--top", type=int, default=5, metavar="K", help="how many classes are shown (5)")
    _checkpoint_option(predict)
    predict.add_argument("--json", action="store_true", help="one JSON object per image and line")
    predict.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: a GPU if there is one"
    )

    export = add(
        "export", cli_export.export, "write a trained model to a file for others", "lockstep export last --to torch"
    )
    export.add_argument("run", metavar="RUN", help=RUN_HELP)
    cli_export.add_options(export)
    _checkpoint_option(export)

    cli_join.add_options(
        add(
            "join",
            cli_join.join,
            "take part in a run that listens on another host",
            "lockstep join 192.0.2.7:4000",
        )
    )

    stop = add("stop", _stop, "end a running job with a checkpoint", "lockstep stop last")
    stop.add_argument("run", metavar="RUN", help=RUN_HELP)

    resize = add("resize", _resize, "change the number of workers of a running job", "lockstep resize last 3")
    resize.add_argument("run", metavar="RUN", help=RUN_HELP)
    resize.add_argument("workers", type=int, metavar="N", help="processes that share the leaves from now on")

    digest = add("digest", _digest, "print the SHA-256 of weights and buffers", "lockstep digest last")
    digest.add_argument(
        "target", metavar="RUN|CHECKPOINT", help="a run (its newest checkpoint), or a checkpoint's directory"
    )

    runs = add("runs", cli_reports.runs, "list the runs, and what deaths and joins have cost them", "lockstep runs")
    runs.add_argument("--json", action="store_true", help="one JSON object per run and line")
    runs.add_argument("--delete", metavar="RUN", nargs="+", help="delete these runs, with everything in them")
    runs.add_argument("--yes", action="store_true", help="delete without asking")

    compare = add(
        "compare", cli_reports.compare, "show runs next to each other: speed, accuracy, bytes, deaths", COMPARE_EXAMPLE
    )
    compare.add_argument("runs", metavar="RUN", nargs="+", help=RUN_HELP)
    compare.add_argument("--top1", type=float, metavar="X", help="show the time to this accuracy, such as 0.9")
    compare.add_argument("--html", metavar="FILE", help="also write a page with curves, which needs no network")
    compare.add_argument("--png", metavar="FILE", help="also write a picture of the curves")
    compare.add_argument("--csv", action="store_true", help="print a line of comma-separated figures for every run")

    diff = add("diff", cli_reports.diff, "find the step and the tensor in which two runs part, and why", DIFF_EXAMPLE)
    diff.add_argument("first", metavar="RUN", help=RUN_HELP)
    diff.add_argument("second", metavar="RUN", help="the other one")
    diff.add_argument("--recorded", action="store_true", help="only compare what was recorded, and do no step again")
    diff.add_argument("--json", action="store_true", help="one JSON object")

    recipes = add("recipes", cli_reports.recipes, "list the built-in recipes, or explain one", "lockstep recipes demo")
    recipes.add_argument("recipe", metavar="RECIPE", nargs="?", help=RECIPE_HELP)
    recipes.add_argument("--json", action="store_true", help="one JSON object per recipe and line")

    config = add(
        "config", _config, "print the configuration that a recipe resolves to", "lockstep config demo --lr 0.2"
    )
    config.add_argument("recipe", metavar="RECIPE", help=RECIPE_HELP)
    _recipe_options(config)

    data_commands.add_commands(
        add(
            "data",
            data_commands.check_path,
            "get data sets, and look at what a path holds",
            "lockstep data get cifar10 data",
        )
    )
    doctor = add("doctor", _doctor, "say whether this machine is fit for training, and what to do", "lockstep doctor")
    doctor.add_argument("--quick", action="store_true", help="without the self-test, which trains for some seconds")
    doctor.add_argument("--json", action="store_true", help="one JSON object with all findings")

    demo = add(
        "demo",
        _demo,
        "train the demo with 1 worker, 2 workers, and a killed one, and compare the digests",
        "lockstep demo",
    )
    demo.add_argument("--steps", type=int, metavar="K", help="a shorter demo, for tests")
    return top


def _train_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("recipe", metavar="RECIPE", help=RECIPE_HELP)
    _recipe_options(command)
    _run_options(command)


def _run_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--run", metavar="NAME|DIR", help="name below runs/, or a directory; <recipe>-<n> by default")
    command.add_argument("--resume", action="store_true", help="continue the run if it exists, so that a rerun is safe")
    _job_options(command)
    _profile_option(command)


def _checkpoint_option(command: argparse.ArgumentParser) -> None:
    command.add_argument("--checkpoint", metavar="best|last|STEP", help="which one of the run; default: the newest")


def _length_options(command: argparse.ArgumentParser) -> None:
    length = command.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, metavar="K", help="length in steps")
    length.add_argument("--epochs", type=float, metavar="E", help="length in epochs: ceil(E x size / batch) steps")
    command.add_argument("--stop-at", type=int, metavar="K", help="end after K steps; schedules do not see it")


def _recipe_options(command: argparse.ArgumentParser) -> None:
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
    command.add_argument("--endpoint-url", metavar="URL", help="another server that speaks S3")
    command.add_argument("--anonymous", action="store_true", default=None, help="read from S3 without credentials")
    command.add_argument(
        "--hold-out", type=int, metavar="N", help="test on N samples kept out of the training set, for tuning"
    )
    command.add_argument("--model", metavar="NAME", help="another model: a known name, timm:NAME or module:function")
    command.add_argument("--init", metavar="FILE|RUN", help="weights to start from: safetensors, a state_dict, a run")
    command.add_argument("--leaves", type=int, metavar="V", help="parts of a batch, a power of two; changes the bits")
    command.add_argument("--batch-size", type=int, metavar="B", help="images per step, over all workers")
    command.add_argument("--lr", type=float, metavar="X", help="learning rate")
    _length_options(command)
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


def _job_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--workers", type=int, metavar="N", help="processes that share the leaves; never changes the bits"
    )
    _strategy_options(command)
    _engine_options(command)
    command.add_argument(
        "--replace", action=argparse.BooleanOptionalAction, default=True, help="start another worker for one that died"
    )
    command.add_argument(
        "--patience", type=float, default=10.0, metavar="S", help="seconds without progress until a worker is expelled"
    )
    command.add_argument(
        "--verify-every", type=int, metavar="K", help="look for silent corruption every K steps (default: never)"
    )
    command.add_argument(
        "--allow-mixed", action="store_true", help="let in workers whose arithmetic differs; the digest then varies"
    )
    command.add_argument(
        "--evaluator",
        nargs="?",
        const="own",
        choices=("own", "shared"),
        help="a process beside the workers evaluates; on Slurm it has a node of its own, or shares one",
    )
    command.add_argument("--no-tensorboard", action="store_true", help="write no TensorBoard events")
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


def _profile_option(command: argparse.ArgumentParser) -> None:
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


def _request(parsed: argparse.Namespace) -> Request:
    from dataclasses import fields

    from lockstep.request import Request

    given = {key: value for key, value in vars(parsed).items() if key in {field.name for field in fields(Request)}}
    return Request(**given, tensorboard=not getattr(parsed, "no_tensorboard", False))


def _train(parsed: argparse.Namespace) -> int:
    from lockstep import api, progress

    display = progress.display(says_result=False)
    run = api.train(parsed.recipe, _request(parsed), run=parsed.run, resume=parsed.resume, display=display)
    return _conclude(run, parsed.profile)


def _launch(parsed: argparse.Namespace) -> int:
    from lockstep import api, progress

    request, display = _request(parsed), progress.display(says_result=False)
    run = api.launch(parsed.script, parsed.arguments, request, run=parsed.run, resume=parsed.resume, display=display)
    return _conclude(run, parsed.profile)


def _resume(parsed: argparse.Namespace) -> int:
    from lockstep import api, progress

    display = progress.display(says_result=False)
    return _conclude(api.resume(parsed.run, _request(parsed), display=display), parsed.profile)


def _evaluate(parsed: argparse.Namespace) -> int:
    import json

    from lockstep import api, progress, runs
    from lockstep.report import confusion

    if parsed.follow:
        return _follow(parsed)
    display = progress.display(says_result=parsed.json)
    run = api.evaluate_run(parsed.run, _request(parsed), checkpoint=parsed.checkpoint, display=display)
    if run.evaluation is None:
        return run.exit_code
    if parsed.json:
        print(json.dumps(runs.figures(run)))
        return run.exit_code
    _print_figures(run)
    if run.confusion is None:
        if parsed.confusion or parsed.per_class:
            print("there are no classes in these data, and nothing that could be taken for something else")
        return run.exit_code
    print(confusion.per_class_table(run.confusion, show_all=parsed.per_class))
    if parsed.confusion:
        print(confusion.matrix_table(run.confusion))
    return run.exit_code


ONCE = ("data", "eval_data", "hold_out", "checkpoint", "per_class", "confusion", "json")
"""Options of `evaluate` that mean nothing when a run is followed."""


def _follow(parsed: argparse.Namespace) -> int:
    from lockstep import api, goal, progress

    for name in ONCE:
        if getattr(parsed, name) not in (None, False):
            raise UserError(f"--{name.replace('_', '-')} is for one evaluation: leave it out, or --follow")
    rows = api.follow_run(parsed.run, _request(parsed), display=progress.display())
    if not rows:
        print(f"{parsed.run} ended without a checkpoint")
        return 0
    name, value = goal.best_in(rows[-1]) or ("loss", math.nan)
    best = next((row["step"] for row in rows if row[name] == value), rows[-1]["step"])
    print(f"{len(rows)} checkpoints evaluated; best {name} {goal.as_text(name, value)} at step {best}")
    return 0


def _stop(parsed: argparse.Namespace) -> int:
    from lockstep import api

    directory = api.command(parsed.run, {"type": "stop"})
    print(f"{directory.name} ends with a checkpoint; continue it with: lockstep resume {directory.name}")
    return 0


def _resize(parsed: argparse.Namespace) -> int:
    from lockstep import api

    directory = api.command(parsed.run, {"type": "resize", "workers": parsed.workers})
    print(f"{directory.name} goes on with {parsed.workers} workers")
    return 0


def _conclude(run: Run, profiled: bool) -> int:
    """The last lines: final figures and digest, or how to go on."""
    if profiled:
        cli_reports.profile(run.directory)
    if run.state == "stopped":
        where = "with a checkpoint" if run.digest else "at once, without a new checkpoint"
        print(f"stopped by {run.signal} {where}; continue with: lockstep resume {run.name}")
        return run.exit_code
    _print_figures(run)
    if (losses := describe_losses(run)) is not None:
        print(losses)
    if run.steps_left:
        print(f"{run.steps_left} steps are left (--stop-at); go on with: lockstep resume {run.name}")
    if run.losses.dropped_leaves:
        print(f"{run.losses.dropped_leaves} leaves were dropped because they came late (--late drop)")
    if run.losses.broken_images:
        images = "image was" if run.losses.broken_images == 1 else "images were"
        print(f"{run.losses.broken_images} broken {images} passed over; metrics.jsonl and the logs name them")
    if run.is_mixed:
        print("workers with different arithmetic took part (--allow-mixed): this digest is not the recipe's")
    if not run.is_reproducible:
        print("this strategy depends on who is how fast: the run is not reproducible, another one has another digest")
    print(f"digest {run.digest}")
    return 0


def describe_losses(run: Run) -> str | None:
    """What deaths and joins have cost, in words; None if nothing happened."""
    losses = run.losses
    if not losses.deaths and not losses.joins:
        return None
    died = f"{losses.deaths} {'worker' if losses.deaths == 1 else 'workers'} died on the way"
    leaves = "leaf" if losses.recomputed_leaves == 1 else "leaves"
    return f"{died}, {losses.joins} joined; {losses.recomputed_leaves} {leaves} recomputed, {losses.seconds:.2f} s lost"


def _print_figures(run: Run) -> None:
    from lockstep.progress import describe_figures

    figures = run.evaluation
    if figures is not None:
        print(f"{run.name}: step {figures['step']}, {describe_figures(figures)}")


def _digest(parsed: argparse.Namespace) -> int:
    from lockstep import checkpoint, selection

    print(checkpoint.digest_of_files(selection.find_checkpoint(parsed.target)))
    return 0


def _config(parsed: argparse.Namespace) -> int:
    import dataclasses
    import json

    from lockstep.request import find_recipe, resolve

    print(json.dumps(dataclasses.asdict(resolve(find_recipe(parsed.recipe), _request(parsed))), indent=2))
    return 0


def _doctor(parsed: argparse.Namespace) -> int:
    from lockstep import doctor

    return doctor.show(doctor.examine(parsed.quick), parsed.json)


def _demo(parsed: argparse.Namespace) -> int:
    from lockstep import demo, progress

    return demo.show(progress.display(), parsed.steps)


if __name__ == "__main__":
    sys.exit(main())
