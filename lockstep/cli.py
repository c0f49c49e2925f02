"""The command `lockstep`. Parsing imports nothing heavy, so that `--help` is instant; commands import what they use."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lockstep import __version__
from lockstep.errors import JobError, UserError

if TYPE_CHECKING:
    from lockstep.api import Request, Run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake is one sentence and exit code 2, a failed job exit code 1."""
    parsed = parser().parse_args(arguments)
    try:
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
    top = argparse.ArgumentParser(
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
    train.add_argument(
        "recipe",
        metavar="RECIPE",
        help="a built-in recipe (see `lockstep recipes`), file.py:function or module:function",
    )
    _recipe_options(train)
    train.add_argument("--run", metavar="NAME|DIR", help="name below runs/, or a directory; <recipe>-<n> by default")
    train.add_argument("--resume", action="store_true", help="continue the run if it exists, so that a rerun is safe")
    _job_options(train)

    resume = add(
        "resume", _resume, "continue a run from its newest good checkpoint", "lockstep resume last --workers 2"
    )
    resume.add_argument("run", metavar="RUN", help="a name, a path or `last`")
    _length_options(resume)
    _job_options(resume)

    evaluate = add("evaluate", _evaluate, "evaluate the newest checkpoint of a run, once", "lockstep evaluate last")
    evaluate.add_argument("run", metavar="RUN", help="a name, a path or `last`")
    evaluate.add_argument("--data", metavar="PATH|NAME", help="other data of the same kind")
    _job_options(evaluate)

    stop = add("stop", _stop, "end a running job with a checkpoint", "lockstep stop last")
    stop.add_argument("run", metavar="RUN", help="a name, a path or `last`")

    resize = add("resize", _resize, "change the number of workers of a running job", "lockstep resize last 3")
    resize.add_argument("run", metavar="RUN", help="a name, a path or `last`")
    resize.add_argument("workers", type=int, metavar="N", help="processes that share the leaves from now on")

    digest = add("digest", _digest, "print the SHA-256 of weights and buffers", "lockstep digest last")
    digest.add_argument(
        "target", metavar="RUN|CHECKPOINT", help="a run (its newest checkpoint), or a checkpoint's directory"
    )

    runs = add("runs", _runs, "list the runs, and what deaths and joins have cost them", "lockstep runs")
    runs.add_argument("--json", action="store_true", help="one JSON object per run and line")

    add("recipes", _recipes, "list the built-in recipes", "lockstep recipes")

    config = add(
        "config", _config, "print the configuration that a recipe resolves to", "lockstep config demo --lr 0.2"
    )
    config.add_argument("recipe", metavar="RECIPE", help="a built-in recipe, file.py:function or module:function")
    _recipe_options(config)

    demo = add(
        "demo",
        _demo,
        "train the demo with 1 worker, 2 workers, and a killed one, and compare the digests",
        "lockstep demo",
    )
    demo.add_argument("--steps", type=int, metavar="K", help="a shorter demo, for tests")
    return top


def _length_options(command: argparse.ArgumentParser) -> None:
    length = command.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, metavar="K", help="length in steps")
    length.add_argument("--epochs", type=float, metavar="E", help="length in epochs: ceil(E x size / batch) steps")


def _recipe_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", metavar="PATH|NAME", help="directory of the data, or `shapes` or `synthetic`")
    command.add_argument("--leaves", type=int, metavar="V", help="parts of a batch, a power of two; changes the bits")
    command.add_argument("--batch-size", type=int, metavar="B", help="images per step, over all workers")
    command.add_argument("--lr", type=float, metavar="X", help="learning rate")
    _length_options(command)
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
    command.add_argument("--strategy", metavar="NAME", help="how workers agree: allreduce")
    command.add_argument("--engine", metavar="NAME", help="where workers run: local")
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
    command.add_argument("--no-tensorboard", action="store_true", help="write no TensorBoard events")


def _request(parsed: argparse.Namespace) -> Request:
    from dataclasses import fields

    from lockstep.api import Request

    given = {key: value for key, value in vars(parsed).items() if key in {field.name for field in fields(Request)}}
    return Request(**given, tensorboard=not getattr(parsed, "no_tensorboard", False))


def _train(parsed: argparse.Namespace) -> int:
    from lockstep import api, progress

    display = progress.display()
    return _conclude(api.train(parsed.recipe, _request(parsed), run=parsed.run, resume=parsed.resume, display=display))


def _resume(parsed: argparse.Namespace) -> int:
    from lockstep import api, progress

    return _conclude(api.resume(parsed.run, _request(parsed), display=progress.display()))


def _evaluate(parsed: argparse.Namespace) -> int:
    from lockstep import api, progress

    run = api.evaluate_run(parsed.run, _request(parsed), display=progress.display())
    if run.state == "finished":
        _print_figures(run)
    return run.exit_code


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


def _conclude(run: Run) -> int:
    """The last lines: final figures and digest, or how to go on."""
    if run.state == "stopped":
        where = "with a checkpoint" if run.digest else "at once, without a new checkpoint"
        print(f"stopped by {run.signal} {where}; continue with: lockstep resume {run.name}")
        return run.exit_code
    _print_figures(run)
    if (losses := describe_losses(run)) is not None:
        print(losses)
    if run.is_mixed:
        print("workers with different arithmetic took part (--allow-mixed): this digest is not the recipe's")
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
    figures = run.evaluation
    if figures is not None:
        print(
            f"{run.name}: step {figures['step']}, top1 {figures['top1']:.2%}, top5 {figures['top5']:.2%}, loss "
            f"{figures['loss']:.4f} on {figures['examples']} test images (best top1 {figures['best_top1']:.2%})"
        )


def _digest(parsed: argparse.Namespace) -> int:
    from lockstep import api, checkpoint

    print(checkpoint.digest_of_files(api.find_checkpoint(parsed.target)))
    return 0


def _runs(parsed: argparse.Namespace) -> int:
    import dataclasses
    import json

    from lockstep.report import runs

    summaries, problems = runs.summarize_all()
    for problem in problems:
        print(f"lockstep: {problem}", file=sys.stderr)
    if parsed.json:
        for summary in summaries:
            print(json.dumps(dataclasses.asdict(summary)))
    elif not summaries:
        print("there is no run in runs/ yet: start one with `lockstep train demo`")
    else:
        from rich.console import Console

        console = Console() if sys.stdout.isatty() else Console(width=160)
        console.print(runs.table(summaries))
    return 0


def _recipes(parsed: argparse.Namespace) -> int:
    from lockstep.recipes import RECIPES

    for name, function in RECIPES.items():
        print(f"{name}: {(function.__doc__ or '').strip().splitlines()[0]}")
    return 0


def _config(parsed: argparse.Namespace) -> int:
    import dataclasses
    import json

    from lockstep import api

    print(json.dumps(dataclasses.asdict(api.resolve(api.find_recipe(parsed.recipe), _request(parsed))), indent=2))
    return 0


def _demo(parsed: argparse.Namespace) -> int:
    from lockstep import demo, progress

    return demo.show(progress.display(), parsed.steps)


if __name__ == "__main__":
    sys.exit(main())
