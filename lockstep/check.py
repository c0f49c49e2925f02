"""Everything about the numbers of a recipe that can be wrong, each with a sentence that says what to do."""

from __future__ import annotations

import math

from lockstep import goal
from lockstep.config import Data, Group, Optimizer, Recipe, Schedule
from lockstep.errors import UserError
from lockstep.scaling import scaled

MOST_EPOCHS, MOST_STEPS = 10**9, 10**12
"""Far beyond what anyone trains, and within what samples are counted with."""


def require(holds: bool, sentence: str) -> None:
    if not holds:
        raise UserError(sentence)


def check_recipe(recipe: Recipe) -> None:
    """Everything about the numbers of a recipe that can be wrong."""
    r = recipe
    require(
        r.leaves >= 1 and r.leaves & (r.leaves - 1) == 0,
        f"the number of leaves must be a power of two, not {r.leaves}: try {_nearest_power_of_two(r.leaves)}",
    )
    require(r.global_batch >= 1, f"the batch size must be positive, not {r.global_batch}")
    require(0 < r.scale <= 1e6, f"the scale must be a positive number of at most a million, not {r.scale:g}")
    require(
        r.scale != 1 or r.global_batch % r.leaves == 0,
        f"a batch of {r.global_batch} cannot be cut into {r.leaves} equal leaves: take a batch size of "
        f"{max(1, round(r.global_batch / r.leaves)) * r.leaves}, or other {_leaves_option(r)}",
    )
    require(
        r.precision != "tf32" or r.device == "cuda",
        "--precision tf32 is a mode of GPUs, and this training is on the CPU: take --precision fp32 or bf16",
    )
    require(r.threads >= 1, f"threads must be at least 1, not {r.threads}")
    require(r.steps is not None or r.epochs is not None, "the recipe has no length: give it steps or epochs")
    require(r.steps is None or r.epochs is None, "give the length either in steps or in epochs, and not in both")
    numbers = {
        "the number of epochs": r.epochs or 0.0,
        "the learning rate (--lr, schedule.lr)": r.schedule.lr,
        "schedule.warmup": r.schedule.warmup,
        "checkpoints.every_seconds": r.checkpoints.every_seconds,
        "checkpoints.every_epochs": r.checkpoints.every_epochs,
    }
    for name, number in numbers.items():
        require(math.isfinite(number), f"{name} must be a finite number, not {number}")
    require(r.steps is None or r.steps >= 1, f"the number of steps must be at least 1, not {r.steps}")
    require(r.epochs is None or r.epochs > 0, f"the number of epochs must be positive, not {r.epochs}")
    require((r.steps or 0) <= MOST_STEPS, f"the number of steps must be at most {MOST_STEPS:,}, not {r.steps}")
    require((r.epochs or 0) <= MOST_EPOCHS, f"the number of epochs must be at most {MOST_EPOCHS:,}, not {r.epochs}")
    require(r.log_every >= 1, f"log_every must be at least 1 step, not {r.log_every}")
    require(r.stop_at is None or r.stop_at >= 1, f"stop_at must be at least 1 step, not {r.stop_at}")
    require(0 <= r.label_smoothing < 1, f"label_smoothing must be in [0, 1), not {r.label_smoothing}")
    require(0 <= r.average < 1, f"the decay of the average must be in [0, 1), not {r.average}")
    require(0 <= r.seed < 2**63, f"the seed must be between 0 and 2**63 - 1, not {r.seed}")
    check_data(r.data, scaled(r).leaf_batch)
    check_objective(r)
    require(r.evaluation.leaf_batch >= 1, f"evaluation.leaf_batch must be at least 1, not {r.evaluation.leaf_batch}")
    require(
        min(r.evaluation.every_steps, r.evaluation.max_leaves) >= 0, "the numbers of `evaluation` must not be negative"
    )
    require(r.checkpoints.keep >= 1, f"checkpoints.keep must be at least 1, not {r.checkpoints.keep}")
    require(
        min(r.checkpoints.every_steps, r.checkpoints.every_epochs, r.checkpoints.every_seconds) >= 0,
        "the intervals of `checkpoints` must not be negative",
    )
    check_optimizer(r.optimizer)
    check_schedule(r.schedule, {"steps": r.steps, "epochs": r.epochs, "fraction": 1.0}[r.schedule.unit])
    scaled(r)  # which refuses what its batch cannot be multiplied by


def check_objective(r: Recipe) -> None:
    """What cannot be had together with a loss or a metric of the user's own."""
    if r.loss != goal.CROSS_ENTROPY:
        for key, value in (
            ("label_smoothing", r.label_smoothing),
            ("data.mixup", r.data.mixup),
            ("data.cutmix", r.data.cutmix),
        ):
            require(not value, f"{key} is a part of the built-in cross-entropy: leave it at 0 with a loss of your own")
    name = goal.metric_name(r)
    require(
        name is None or (name not in goal.TAKEN and not name.startswith("best_")),
        f"rows of metrics have a figure {name!r} already: give the function of `metric` another name",
    )


def check_optimizer(o: Optimizer) -> None:
    require(0 <= o.momentum < 1, f"momentum must be in [0, 1), not {o.momentum}")
    require(
        not o.nesterov or o.momentum > 0 or o.name != "sgd",
        "Nesterov's update needs a momentum above 0: set optimizer.momentum",
    )
    require(
        o.momentum_correction or (o.name == "sgd" and o.momentum > 0),
        "momentum_correction can be left out only with the optimizer sgd and a momentum above 0",
    )
    require(all(0 <= beta < 1 for beta in o.betas), f"both betas must be in [0, 1), not {list(o.betas)}")
    require(0 < o.epsilon < math.inf, f"epsilon must be positive, not {o.epsilon}")
    require(0 <= o.weight_decay < math.inf, f"weight decay must not be negative, but is {o.weight_decay}")
    for group in o.groups:
        check_group(group, o.name)
    require(0 <= o.clip_norm < math.inf, f"clip_norm must be positive, or 0 for never, not {o.clip_norm}")


def check_group(g: Group, optimizer: str) -> None:
    require(
        g.orthogonal is None or optimizer == "muon",
        f"only the optimizer muon has orthogonal updates: leave `orthogonal` out of the group {g.match!r}",
    )
    require(
        g.momentum is None or optimizer != "adamw",
        f"the optimizer adamw has betas and no momentum: leave it out of the group {g.match!r}",
    )
    require(0 <= g.lr < math.inf, f"the factor of the learning rate of {g.match!r} must not be negative, but is {g.lr}")
    require(g.momentum is None or 0 <= g.momentum < 1, f"the momentum of {g.match!r} must be in [0, 1)")
    require(
        g.weight_decay is None or 0 <= g.weight_decay < math.inf,
        f"the weight decay of {g.match!r} must be finite and not negative, but is {g.weight_decay}",
    )


def check_schedule(s: Schedule, length: float | None) -> None:
    """`length` is that of the recipe in the schedule's unit; None if only the size of the data tells it."""
    require(s.lr >= 0, f"the learning rate must not be negative, but is {s.lr}")
    require(
        len(s.boundaries) == len(s.factors),
        f"a step schedule needs one factor per boundary, but there are {len(s.boundaries)} boundaries and "
        f"{len(s.factors)} factors",
    )
    require(list(s.boundaries) == sorted(s.boundaries), "the boundaries of a schedule must be ascending")
    require(
        all(0 <= one < math.inf for one in (*s.boundaries, *s.factors)),
        "boundaries and factors must be finite numbers, and none of them negative",
    )
    require(s.warmup >= 0, f"the warm-up must not be negative, but is {s.warmup}")
    require(0 <= s.scale_warmup < math.inf, f"scale_warmup must not be negative, but is {s.scale_warmup}")
    require(0 <= s.warmup_from < math.inf, f"warmup_from must not be negative, but is {s.warmup_from}")
    require(0 <= s.final < math.inf, f"the final factor must not be negative, but is {s.final}")
    if s.name == "triangular":
        require(s.warmup == 0, "a triangular schedule rises by itself: leave schedule.warmup at 0")
        check_peak(s, math.inf if length is None else length)


def check_peak(s: Schedule, end: float) -> None:
    """`end` is the length of the run in the schedule's unit."""
    require(
        0 <= s.peak <= end and math.isfinite(s.peak),
        f"the peak at {s.peak:g} {s.unit} is not inside the run: it has {end:g}; set schedule.peak",
    )


def check_course(recipe: Recipe, num_steps: int, num_samples: int) -> None:
    """What only the size of the data tells: whether the schedule comes to its peak."""
    s = recipe.schedule
    if s.name == "triangular":
        epochs = num_steps * recipe.global_batch / num_samples
        check_peak(s, {"steps": num_steps, "epochs": epochs, "fraction": 1.0}[s.unit])


def check_new(recipe: Recipe) -> None:
    """What a training that begins may not have, besides; one that has begun with it goes on."""
    require(
        recipe.name.strip() != "" and not recipe.name.startswith("-"),
        f"a recipe's name is that of its runs, and {recipe.name!r} cannot be: set another `name`",
    )
    s = recipe.schedule
    unit = s.warmup_unit or s.unit
    require(
        unit != "fraction" or s.warmup <= 1,
        f"a warm-up of {s.warmup:g} times the whole run never ends: give at most 1, or another schedule.warmup_unit",
    )
    require(
        s.name != "step" or s.boundaries != (),
        "the schedule step has no boundaries: give schedule.boundaries and schedule.factors, or take constant",
    )
    require(
        s.name != "step" or s.unit != "fraction" or max(s.boundaries) <= 1,
        f"a boundary at {max(s.boundaries, default=0):g} times the whole run is never reached: give at most 1, or "
        "another schedule.unit",
    )


def check_data(data: Data, leaf_batch: int) -> None:
    """The numbers of reading and augmentation."""
    for name in ("crop_padding", "cutout", "hold_out", "prefetch", "processes", "max_broken", "cache_size"):
        number = getattr(data, name)
        require(number >= 0, f"data.{name} must not be negative, but is {number}")
    require(
        not data.hold_out or data.eval_path is None,
        "test either on held-out samples (--hold-out) or on a test set of its own (--eval-data), and not on both",
    )
    require(
        len(data.mean) == len(data.deviation) and all(map(math.isfinite, data.mean)),
        "data.mean and data.deviation take one finite number per channel each: give both, or none",
    )
    require(
        all(math.isfinite(one) and one > 0 for one in data.deviation), "every data.deviation must be a positive number"
    )
    for name in ("window", "side", "read_ahead"):
        number = getattr(data, name)
        require(number is None or number >= 1, f"data.{name} must be at least 1, not {number}")
    least, most = data.resize
    require(
        data.framing == "random-resized" or data.side <= least <= most,
        f"data.resize takes two ascending numbers of pixels that are no less than data.side ({data.side}), not "
        f"{list(data.resize)}",
    )
    until = [fraction for fraction, _ in data.sizes]
    require(
        all(1 <= side <= 4096 and 0 < fraction <= 1 for fraction, side in data.sizes)
        and until == sorted(until)
        and until[-1:] in ([], [1.0]),
        "data.sizes takes pairs of a fraction of the run and a side in pixels, ascending, the last fraction being 1, "
        "such as [[0.6, 16], [1, 24]]",
    )
    require(0 <= data.shift < 1, f"data.shift is a fraction of the side, from 0 to below 1, not {data.shift}")
    require(0 <= data.erase <= 1, f"data.erase is a probability, from 0 to 1, not {data.erase}")
    for name in ("mixup", "cutmix"):
        alpha = getattr(data, name)
        require(alpha >= 0 and math.isfinite(alpha), f"data.{name} must be 0 or a positive number, not {alpha}")
        require(
            alpha == 0 or leaf_batch >= 2,
            f"data.{name} mixes the images of a leaf, and a leaf has only one: take a larger batch, or fewer --leaves",
        )


def _nearest_power_of_two(number: int) -> int:
    return 1 << max(0, round(max(1, number)).bit_length() - 1)


def check_workers(recipe: Recipe, workers: int, least: int = 1) -> None:
    if workers < least:
        raise UserError(f"the number of workers must be at least {least}, not {workers}")
    if workers > recipe.leaves:
        raise UserError(
            f"{workers} workers cannot share {recipe.leaves} leaves, each needs at least one: take --workers "
            f"{recipe.leaves} or fewer, or more {_leaves_option(recipe)} (another V gives another digest)"
        )


def _leaves_option(recipe: Recipe) -> str:
    """How a user gives the number of leaves."""
    return "--leaves" if recipe.script is None else "leaves= of job.batches"
