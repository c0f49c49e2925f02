"""What a job is made of: the recipe (what is trained, everything the bits depend on) and the job (how and where).

Configuration is plain frozen data. The built-in recipes are in `lockstep.recipes`; what a user asks for is put into
them by `lockstep.request` and `lockstep.settings`, `lockstep.configfile` writes and reads `config.json`, and
`lockstep.check` looks at the numbers before any process starts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Checkpoints", "Data", "Evaluation", "Group", "Model", "Optimizer", "Recipe", "Schedule"]
"""What recipes are made of. The rest is for Lockstep itself."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """What there is to train and to test with, most often images, and what happens to it before the model sees it."""

    source: str = "cifar10"
    """Which reader: a name from `lockstep.data.SOURCES`, or a function of your own (`file.py:function` or
    `package.module:function`) that returns a training and a test set, see `lockstep.data.own`."""
    path: str | None = None
    """A directory, an archive, a file, a glob, or several of these with commas between; embedded sources need none."""
    eval_path: str | None = None
    """Where the test set is, if it does not lie beside the training set."""
    labels: Literal["fine", "coarse"] = "fine"
    """Which of CIFAR-100's two labels is the target."""
    label_path: str | None = None
    """A file or URL with a line "name label" for every image of the training set; None: shards and folders say it."""
    eval_label_path: str | None = None
    """The same for the test set."""
    key_prefix: str = ""
    """Of many shards, only those whose names begin so."""
    background: bool = False
    """Whether class 0 is "background", of which there are no images, and all others come one later (1001 classes)."""
    endpoint_url: str | None = None
    """Another server that speaks S3. It changes no bits, as little as `path` does."""
    anonymous: bool = False
    """Whether requests to S3 are not signed."""
    window: int | None = None
    """Shards that are shuffled together, where samples lie in shards. None: 16, but all of them where every shard or
    folder holds one class alone: a few shards would be a few classes."""
    framing: Literal["square", "random-resized", "short-side"] = "random-resized"
    """How large images become those of `side` pixels. In training "square" scales both sides to the first number of
    `resize` and cuts out at random; "random-resized" scales a part of 8 to 100 % of the area; "short-side" scales the
    short side to between the two numbers of `resize` and cuts out at random. The test takes the middle, the short side
    (in "square" both) being scaled to the first number."""
    side: int = 224
    """Of the square that is cut out of a large image, in pixels."""
    resize: tuple[int, int] = (256, 512)
    """Sides to which `framing` scales, in pixels."""
    max_broken: int = 100
    """Images that cannot be decoded, and are passed over; one more stops the run."""
    read_ahead: int = 64
    """Megabytes that a worker may have read and not yet used; changes no bits."""
    cache_size: float = 0.0
    """Gigabytes of this host's disk that keep what was read from elsewhere; 0 for none. Changes no bits."""
    hold_out: int = 0
    """So many samples at the end of the training set (in shards: evenly spread over it) are kept out of it and take the
    place of the test set."""
    crop_padding: int = 4
    """Random crop after padding by so many pixels on each side; 0 for none."""
    pad_mode: Literal["zero", "reflect"] = "zero"
    """What the crop's border is: black, or the image mirrored."""
    shift: float = 0.0
    """Random shift by up to this fraction of each side, the border pixels repeated; 0 for none."""
    flip: bool | Literal["alternate"] = True
    """Random horizontal flip; "alternate": at random in the first epoch, then the other way in every other one."""
    policy: Literal["none", "trivial", "rand"] = "none"
    """Random transformations of colour and geometry: TrivialAugment, or RandAugment with two of magnitude 9 of 30."""
    cutout: int = 0
    """Side of a square at a random place that every image loses to its mean colour, in pixels; 0 for none."""
    erase: float = 0.0
    """Probability with which a random rectangle of an image takes its mean colour (random erasing)."""
    mixup: float = 0.0
    """Alpha of mixup: images are blended with others of their leaf; 0 for none."""
    cutmix: float = 0.0
    """Alpha of cutmix: a rectangle comes from another image of the leaf; 0 for none. With mixup, half of the leaves."""
    sizes: tuple[tuple[float, int], ...] = ()
    """Sides to which training images are scaled, each with the fraction of the run until which it holds, such as
    [[0.6, 16], [1, 24]]: smaller images are cheaper. Evaluation takes the last one. Empty leaves images as they are."""
    standardize: Literal["image", "channel", "mean-image", "none"] = "image"
    """"image": each image to mean 0 and deviation 1; "channel": by the mean and deviation of each channel over the
    training set; "mean-image": the mean image is subtracted; "none": pixels divided by 255."""
    mean_image: str | None = None
    """The .npy file that `lockstep data mean` writes; the middle of it is subtracted."""
    mean: tuple[float, ...] = ()
    """What "channel" subtracts from each channel, pixels being 0 to 255; empty: measured at the start of the run."""
    deviation: tuple[float, ...] = ()
    """What "channel" divides each channel by; empty: measured at the start of the run."""
    prefetch: int = 2
    """Leaves read ahead of the one being computed."""
    processes: int = 0
    """Processes beside each worker that read the items of a data set of your own; 0: the worker itself, between leaves.
    Changes no bits."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """Which network."""

    name: str = "resnet-cifar"
    """A name from `lockstep.models.MODELS`, `timm:NAME`, or a function of your own (`file.py:function` or
    `package.module:function`), called with num_classes, image_shape and the options."""
    options: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the model's function, such as depth."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """What is different for some of the parameters."""

    match: str
    """Their names, with `*` for anything, such as `head.*`. The first group that matches counts."""
    lr: float = 1.0
    """Factor of the learning rate."""
    momentum: float | None = None
    weight_decay: float | None = None
    orthogonal: bool | None = None
    """Whether "muon" makes their updates orthogonal; by default those of two and more dimensions."""


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """How weights change, given gradients."""

    name: Literal["sgd", "adamw", "muon"] = "sgd"
    """A name from `lockstep.optim.OPTIMIZERS`."""
    momentum: float = 0.9
    """Of "sgd" and "muon"; 0 for none."""
    nesterov: bool = False
    """Whether "sgd" takes Nesterov's update."""
    momentum_correction: bool = True
    """Whether the past of "sgd" counts at the learning rate of now (Goyal et al. 2017, equation 9, and PyTorch), or, if
    false, at the rates that it had, as in Keras without the correction (equation 10)."""
    betas: tuple[float, float] = (0.9, 0.999)
    """The two decays of "adamw"."""
    epsilon: float = 1e-8
    """The floor in the denominator of "adamw"."""
    weight_decay: float = 1e-4
    decay: Literal["all", "kernels"] = "all"
    """What decays: every parameter, or only those of two and more dimensions (no bias, no BatchNorm)."""
    groups: tuple[Group, ...] = ()
    """Parameters with settings of their own."""
    clip_norm: float = 0.0
    """Gradients are scaled down to this Euclidean norm over the whole model; 0 for never."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The learning rate of every step: a pure function of its number."""

    name: Literal["constant", "step", "cosine", "triangular"] = "constant"
    lr: float = 0.1
    """The learning rate that everything below multiplies."""
    unit: Literal["steps", "epochs", "fraction"] = "fraction"
    """The unit of `warmup`, `boundaries` and `peak`: steps, epochs, or fractions of the whole run."""
    warmup: float = 0.0
    """Length of the linear warm-up."""
    warmup_unit: Literal["steps", "epochs", "fraction"] | None = None
    """The unit of `warmup`, if it is another one."""
    warmup_from: float = 0.1
    """Factor of the very first step when there is a warm-up."""
    boundaries: tuple[float, ...] = ()
    """Where "step" changes the learning rate."""
    factors: tuple[float, ...] = ()
    """The factor from each boundary on."""
    final: float = 0.0
    """Factor at which "cosine" and "triangular" end."""
    peak: float = 0.3
    """Where "triangular" has its peak, in the schedule's unit; it rises from `warmup_from` and falls to `final`."""
    with_scale: Literal["rate", "boundaries"] = "rate"
    """What the recipe's `scale` does: "rate" multiplies the learning rate, and warms up from the single-worker rate;
    "boundaries" keeps the rate and divides the boundaries by the square root of the scale."""
    scale_warmup: float = 5.0
    """Epochs of warm-up that "rate" adds when `scale` is above 1 and the schedule has no warm-up; 0 for none."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """When the model is tested, and on how much."""

    every_steps: int = 0
    """Evaluate after every so many steps; 0 means only at the end."""
    leaf_batch: int = 250
    """Samples that are evaluated in one piece; belongs to the bits of the reported loss."""
    max_leaves: int = 0
    """Evaluate only the first so many pieces; 0 means the whole test set."""
    views: Literal["one", "mirror", "shifted"] = "one"
    """"mirror": logits are the mean of those of an image and its mirror image, at twice the cost; "shifted": half of
    them are those, half are of both shifted by a pixel, up and left or down and right, at six times the cost."""


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """When checkpoints are written, and how many stay."""

    every_steps: int = 0
    """Write a checkpoint after every so many steps; 0 for never. The last step always writes one."""
    every_epochs: float = 0.0
    """Write a checkpoint after every so many epochs; 0 for never."""
    every_seconds: float = 600.0
    """Write a checkpoint when so many seconds have passed since the last; 0 for never."""
    keep: int = 2
    """How many of the newest checkpoints stay on disk; the one with the best evaluation stays too."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """A training loop of the user's own, as it described itself: data, model, optimizer and schedule are in there."""

    path: str
    arguments: tuple[str, ...] = ()
    sha256: str = ""
    """Of the file."""
    num_samples: int = 0
    """Of the training set."""
    start_digest: str = ""
    """Of the weights and buffers that it begins with: every worker must have the same."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is trained. Everything that the bits of the result depend on is in here or in `environment.json`.

    >>> from dataclasses import replace
    >>> from lockstep.config import Data, Model, Recipe, Schedule
    >>> wide = Recipe(
    ...     name="wide",
    ...     data=Data(source="cifar10", cutout=8),
    ...     model=Model(name="wide-resnet", options={"width": 8}),
    ...     schedule=Schedule(name="cosine", lr=0.2, warmup=0.05),
    ...     global_batch=256,
    ...     leaves=8,
    ...     epochs=30,
    ... )
    >>> wide.leaf_batch
    32
    >>> replace(wide, schedule=replace(wide.schedule, lr=0.1)).schedule.lr
    0.1
    """

    name: str
    data: Data = Data()
    model: Model = Model()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    global_batch: int = 128
    """Samples per step, over all workers."""
    leaves: int = 4
    """V: parts into which the global batch is cut; a power of two, and the largest useful number of workers."""
    threads: int = 1
    """Threads that compute one leaf; part of the recipe, never derived from the machine."""
    steps: int | None = None
    """Length in steps; this or `epochs`."""
    epochs: float | None = None
    """Length in passes over the data: ceil(epochs * size / global_batch) steps."""
    stop_at: int | None = None
    """Training ends after so many steps; schedules do not see it, and a resume goes on from there."""
    scale: float = 1.0
    """As if so many workers of the classic kind took part: batch and learning rate are multiplied and steps divided by
    it, see `Schedule.with_scale` and `lockstep.scaling`. The number of workers enters nowhere."""
    seed: int = 0
    init: str | None = None
    """File of weights to start from, or a run; None: random ones by the seed. A run's configuration has the file."""
    init_sha256: str | None = None
    """What that file must be; it is filled in when a run starts."""
    loss: str = "cross-entropy"
    """Or a function of your own: of outputs and targets, it returns the mean over the examples as one number."""
    metric: str | None = None
    """A function of your own, of outputs and targets: it returns a value for every example, or one number, their sum.
    The mean over the examples is reported under the function's name."""
    better: Literal["higher", "lower"] = "higher"
    """Which `metric` is better. Without one the best evaluation is that with the highest top1, or where there are no
    classes that with the lowest loss."""
    label_smoothing: float = 0.0
    """The share of the target that is spread evenly over all classes, in training; evaluation's loss is without."""
    average: float = 0.0
    """Decay per step of a moving average of weights and statistics, which evaluation then uses; 0 for none. In step t
    (from 0) it is min(average, (1 + t) / (10 + t)), so that the initial weights are soon forgotten."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """"auto" is a GPU if there is one; a run's configuration says which it was."""
    precision: Literal["fp32", "bf16", "tf32"] = "fp32"
    """What matrix products and convolutions compute in; weights, sums and the optimizer stay in float32."""
    compile: bool = False
    """Whether the model is compiled: other bits, half a minute at the start, sometimes faster."""
    channels_last: bool = True
    """Memory format of images and kernels; other bits, and faster on CPUs and recent GPUs."""
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()
    log_every: int = 10
    """Steps between two rows of metrics."""
    script: Script | None = None
    """What `lockstep launch` runs; then `data`, `model`, `optimizer`, `schedule` and `evaluation` above say nothing."""

    @property
    def leaf_batch(self) -> int:
        return self.global_batch // self.leaves


@dataclass(frozen=True, kw_only=True)
class Job:
    """How and where a recipe is trained. Nothing in here changes the bits of the result, but for the strategies that
    are not synchronous, and their settings."""

    workers: int
    strategy: str = "allreduce"
    """A name from `lockstep.strategies.STRATEGIES`."""
    servers: int = 0
    """Processes that own the slices in "server" and "async"; 0 where there are none."""
    backup: int = 0
    """Leaves per step that "server" lets another worker compute as well when they are late; 0 for none."""
    wait_for: int = 0
    """With how many leaves a step of "server" is done, the late ones being dropped; 0 means all, and none is."""
    local_steps: int = 10
    """Steps that every leaf takes by itself between two averages in "averaging"."""
    outer: Literal["none", "nesterov"] = "none"
    """What "averaging" does with the average: takes it, or makes a Nesterov step towards it (DiLoCo)."""
    max_staleness: int = 4
    """Steps by which the fastest worker of "async" may be ahead of the slowest."""
    engine: str = "local"
    """A name from `lockstep.engines.ENGINES`."""
    address: str | None = None
    """The cluster that "ray" joins; None for the one it finds, or one of its own."""
    placement: Literal["any", "spread", "pack"] = "any"
    """Whether "ray" puts processes on as many nodes as it can, on as few, or anywhere."""
    cpus_per_worker: int = 0
    """Cores that a scheduler reserves for a worker; 0 means the recipe's threads."""
    listen: str | None = None
    """Address on which hosts of the user's own may join; None for nowhere."""
    min_workers: int = 0
    """How many must be there for training to begin and to go on while the others find no room; 0 means that it begins
    with all and goes on with any."""
    evaluator: Literal["none", "own", "shared"] = "none"
    """Whether a process beside the workers evaluates, and whether a scheduler gives it a node of its own."""
    tensorboard: bool = True
    """Whether the logger `tensorboard` is used."""
    loggers: tuple[str, ...] = ()
    """Who else is told the figures: names from `lockstep.loggers.LOGGERS`."""
    histograms_every: int = 0
    """Steps between two histograms of weights and gradients; 0 means after every evaluation."""
    profile: bool = False
    """Whether every worker notes when each part of a step began and how long it took."""
    replace: bool = True
    """Whether a worker that died is replaced."""
    patience: float = 10.0
    """Seconds without a heartbeat or progress after which a worker is expelled; more where leaves take long."""
    verify_every: int = 0
    """Steps between two searches for silent corruption; 0 for none."""
    allow_mixed: bool = False
    """Whether workers whose arithmetic differs may take part, at the price of the promise."""
