"""What a job is made of: the recipe (what is trained, everything the bits depend on) and the job (how and where).

Configuration is plain frozen data. It is checked once, here and in `lockstep.api`, before any process starts.
The built-in recipes are in `lockstep.recipes`.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from lockstep.errors import UserError, unknown

FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Data:
    source: str = "cifar10"
    """Which reader: a name from `lockstep.data.SOURCES`."""
    path: str | None = None
    """Where the files are; the embedded sources need none."""
    crop_padding: int = 4
    """Random crop after padding by so many pixels on each side; 0 for none."""
    flip: bool = True
    """Random horizontal flip."""
    standardize: Literal["image", "none"] = "image"
    """"image": each image to mean 0 and deviation 1; "none": pixels divided by 255."""
    prefetch: int = 2
    """Leaves read ahead of the one being computed."""


@dataclass(frozen=True, kw_only=True)
class Model:
    name: str = "resnet-cifar"
    """A name from `lockstep.models.MODELS`, `timm:NAME`, or a function of your own (`file.py:function` or
    `package.module:function`), called with num_classes, image_shape and the options."""
    options: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the model's function, such as depth."""


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    name: Literal["sgd"] = "sgd"
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 1e-4


@dataclass(frozen=True, kw_only=True)
class Schedule:
    name: Literal["constant", "step", "cosine"] = "constant"
    lr: float = 0.1
    """The learning rate that everything below multiplies."""
    unit: Literal["steps", "epochs", "fraction"] = "fraction"
    """The unit of `warmup` and `boundaries`: steps, epochs, or fractions of the whole run."""
    warmup: float = 0.0
    """Length of the linear warm-up."""
    warmup_from: float = 0.1
    """Factor of the very first step when there is a warm-up."""
    boundaries: tuple[float, ...] = ()
    """Where "step" changes the learning rate."""
    factors: tuple[float, ...] = ()
    """The factor from each boundary on."""
    final: float = 0.0
    """Factor at which "cosine" ends."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    every_steps: int = 0
    """Evaluate after every so many steps; 0 means only at the end."""
    leaf_batch: int = 250
    """Images that are evaluated in one piece; belongs to the bits of the reported loss."""
    max_leaves: int = 0
    """Evaluate only the first so many pieces; 0 means the whole test set."""


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    every_steps: int = 0
    """Write a checkpoint after every so many steps; 0 for never. The last step always writes one."""
    every_epochs: float = 0.0
    """Write a checkpoint after every so many epochs; 0 for never."""
    every_seconds: float = 600.0
    """Write a checkpoint when so many seconds have passed since the last; 0 for never."""
    keep: int = 2
    """How many of the newest checkpoints stay on disk; the one with the best evaluation stays too."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is trained. Everything that the bits of the result depend on is in here or in `environment.json`."""

    name: str
    data: Data = Data()
    model: Model = Model()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    global_batch: int = 128
    """Images per step, over all workers."""
    leaves: int = 4
    """V: parts into which the global batch is cut; a power of two, and the largest useful number of workers."""
    threads: int = 1
    """Threads that compute one leaf; part of the recipe, never derived from the machine."""
    steps: int | None = None
    """Length in steps; this or `epochs`."""
    epochs: float | None = None
    """Length in passes over the data: ceil(epochs * size / global_batch) steps."""
    seed: int = 0
    device: Literal["cpu", "cuda"] = "cpu"
    channels_last: bool = True
    """Memory format of images and kernels; other bits, and faster on CPUs and recent GPUs."""
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()
    log_every: int = 10
    """Steps between two rows of metrics."""

    @property
    def leaf_batch(self) -> int:
        return self.global_batch // self.leaves


@dataclass(frozen=True, kw_only=True)
class Job:
    """How and where a recipe is trained: nothing in here changes the bits of the result."""

    workers: int
    strategy: str = "allreduce"
    engine: str = "local"
    tensorboard: bool = True
    replace: bool = True
    """Whether a worker that died is replaced."""
    patience: float = 10.0
    """Seconds without a heartbeat or progress after which a worker is expelled; more where leaves take long."""
    verify_every: int = 0
    """Steps between two searches for silent corruption; 0 for none."""
    allow_mixed: bool = False
    """Whether workers whose arithmetic differs may take part, at the price of the promise."""


def to_plain(recipe: Recipe, job: Job) -> dict[str, Any]:
    """The contents of `config.json`."""
    return {"version": FORMAT_VERSION, "recipe": dataclasses.asdict(recipe), "job": dataclasses.asdict(job)}


def from_plain(plain: Any, where: str) -> tuple[Recipe, Job]:
    """Read what `to_plain` wrote, also by an older version of Lockstep."""
    if not isinstance(plain, dict) or "recipe" not in plain or "job" not in plain:
        raise UserError(f"{where} is not a Lockstep configuration: it needs the keys version, recipe and job")
    if plain.get("version") != FORMAT_VERSION:
        raise UserError(
            f"{where} has format version {plain.get('version')!r}, this Lockstep reads {FORMAT_VERSION}: "
            "use the version of Lockstep that wrote it, or a newer one"
        )
    return recipe_from_plain(plain["recipe"], where), _convert(plain["job"], Job, where)


def recipe_from_plain(plain: Any, where: str) -> Recipe:
    recipe: Recipe = _convert(plain, Recipe, where)
    return recipe


def _convert(plain: Any, cls: type[Any], where: str) -> Any:
    _refuse_unknown_keys(plain, cls, where)
    try:
        return msgspec.convert(plain, cls)
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: {str(error).replace('$.', '')}") from None


def _refuse_unknown_keys(plain: Any, cls: type[Any], where: str) -> None:
    if not isinstance(plain, dict):
        return
    known = {f.name: f for f in dataclasses.fields(cls)}
    for key, value in plain.items():
        if key not in known:
            raise UserError(f"{where}: {unknown('key', str(key), known)}")
        default = known[key].default
        if dataclasses.is_dataclass(default):
            _refuse_unknown_keys(value, type(default), where)


def with_settings(recipe: Recipe, settings: list[str]) -> Recipe:
    """Apply `key=value` settings, such as `schedule.lr=0.2`; a key below `model` may name an option of the model."""
    plain = dataclasses.asdict(recipe)
    for setting in sorted(settings, key=lambda one: not one.startswith("model.name=")):
        key, equals, text = setting.partition("=")
        if not equals:
            raise UserError(f"--set takes key=value, such as schedule.lr=0.2, not {setting!r}")
        _set_path(plain, key.strip().split("."), _parse_value(text.strip()), key)
        if key.strip() in ("steps", "epochs"):  # a length replaces the other one
            plain["epochs" if key.strip() == "steps" else "steps"] = None
        if key.strip() == "model.name" and plain["model"]["name"] != recipe.model.name:  # the options were the other's
            plain["model"]["options"] = {}
    return recipe_from_plain(plain, "--set" if settings else f"recipe {recipe.name}")


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return {"True": True, "False": False, "None": None}.get(text, text)


def _set_path(plain: dict[str, Any], path: list[str], value: Any, key: str) -> None:
    if path[0] == "model" and len(path) == 2 and path[1] not in plain["model"]:
        path = ["model", "options", path[1]]
    target = plain
    for part in path[:-1]:
        if not isinstance(target.get(part), dict):
            raise unknown("key", key, known_keys(plain))
        target = target[part]
    is_option = path[:-1] == ["model", "options"]
    if path[-1] not in target and not is_option:
        raise unknown("key", key, known_keys(plain))
    if isinstance(target.get(path[-1]), dict):
        raise UserError(f"--set {key}: this is a group of settings, name one of {', '.join(sorted(target[path[-1]]))}")
    target[path[-1]] = value


def known_keys(plain: dict[str, Any], prefix: str = "") -> list[str]:
    """Every key that `--set` takes, with dots."""
    keys = []
    for name, value in plain.items():
        keys += known_keys(value, f"{prefix}{name}.") if isinstance(value, dict) else [f"{prefix}{name}"]
    return keys


def check_recipe(recipe: Recipe) -> None:
    """Everything about the numbers of a recipe that can be wrong."""
    r = recipe

    def require(holds: bool, sentence: str) -> None:
        if not holds:
            raise UserError(sentence)

    require(
        r.leaves >= 1 and r.leaves & (r.leaves - 1) == 0,
        f"the number of leaves must be a power of two, not {r.leaves}: try {_nearest_power_of_two(r.leaves)}",
    )
    require(r.global_batch >= 1, f"the batch size must be positive, not {r.global_batch}")
    require(
        r.global_batch % r.leaves == 0,
        f"a batch of {r.global_batch} cannot be cut into {r.leaves} equal leaves: take a batch size of "
        f"{max(1, round(r.global_batch / r.leaves)) * r.leaves}, or other --leaves",
    )
    require(r.threads >= 1, f"threads must be at least 1, not {r.threads}")
    require(r.steps is not None or r.epochs is not None, "the recipe has no length: give it steps or epochs")
    require(r.steps is None or r.epochs is None, "give the length either in steps or in epochs, and not in both")
    numbers = (
        r.epochs or 0.0,
        r.schedule.lr,
        r.schedule.warmup,
        r.checkpoints.every_seconds,
        r.checkpoints.every_epochs,
    )
    require(all(map(math.isfinite, numbers)), "lengths, intervals and the learning rate must be finite numbers")
    require(r.steps is None or r.steps >= 1, f"the number of steps must be at least 1, not {r.steps}")
    require(r.epochs is None or r.epochs > 0, f"the number of epochs must be positive, not {r.epochs}")
    require(r.log_every >= 1, f"log_every must be at least 1 step, not {r.log_every}")
    require(0 <= r.seed < 2**63, f"the seed must be between 0 and 2**63 - 1, not {r.seed}")
    require(r.schedule.lr >= 0, f"the learning rate must not be negative, but is {r.schedule.lr}")
    require(
        len(r.schedule.boundaries) == len(r.schedule.factors),
        f"a step schedule needs one factor per boundary, but there are {len(r.schedule.boundaries)} boundaries and "
        f"{len(r.schedule.factors)} factors",
    )
    require(
        list(r.schedule.boundaries) == sorted(r.schedule.boundaries), "the boundaries of a schedule must be ascending"
    )
    require(r.schedule.warmup >= 0, f"the warm-up must not be negative, but is {r.schedule.warmup}")
    require(0 <= r.optimizer.momentum < 1, f"momentum must be in [0, 1), not {r.optimizer.momentum}")
    require(
        not r.optimizer.nesterov or r.optimizer.momentum > 0,
        "Nesterov's update needs a momentum above 0: set optimizer.momentum",
    )
    require(r.optimizer.weight_decay >= 0, f"weight decay must not be negative, but is {r.optimizer.weight_decay}")
    require(r.data.crop_padding >= 0, f"crop_padding must not be negative, but is {r.data.crop_padding}")
    require(r.data.prefetch >= 0, f"data.prefetch must not be negative, but is {r.data.prefetch}")
    require(r.evaluation.leaf_batch >= 1, f"evaluation.leaf_batch must be at least 1, not {r.evaluation.leaf_batch}")
    require(
        min(r.evaluation.every_steps, r.evaluation.max_leaves) >= 0, "the numbers of `evaluation` must not be negative"
    )
    require(r.checkpoints.keep >= 1, f"checkpoints.keep must be at least 1, not {r.checkpoints.keep}")
    require(
        min(r.checkpoints.every_steps, r.checkpoints.every_epochs, r.checkpoints.every_seconds) >= 0,
        "the intervals of `checkpoints` must not be negative",
    )


def _nearest_power_of_two(number: int) -> int:
    return 1 << max(0, round(max(1, number)).bit_length() - 1)


def check_workers(recipe: Recipe, workers: int) -> None:
    if workers < 1:
        raise UserError(f"the number of workers must be at least 1, not {workers}")
    if workers > recipe.leaves:
        raise UserError(
            f"{workers} workers cannot share {recipe.leaves} leaves, each needs at least one: take --workers "
            f"{recipe.leaves} or fewer, or more --leaves (another V gives another digest)"
        )
