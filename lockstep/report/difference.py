"""Where two runs part, by the digests that they recorded, and what could be the cause. Pure; computing the steps again
is for `lockstep.rerun`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lockstep import inputs, lengths, metrics, provenance, references, runcode, strategies
from lockstep.config import Job, Recipe
from lockstep.inputs import Inputs
from lockstep.rundirectory import RunDirectory

if TYPE_CHECKING:
    from lockstep.rerun import Found

NEUTRAL = (
    *("name", "stop_at", "log_every", "evaluation", "checkpoints"),
    *("data.path", "data.eval_path", "data.label_path", "data.eval_label_path", "data.endpoint_url", "data.anonymous"),
    *("data.prefetch", "data.processes", "data.read_ahead", "data.cache_size", "data.max_broken"),
)
"""Keys of a recipe, or the beginnings of several, that no weight depends on."""


@dataclass(frozen=True)
class Record:
    """What a run has written down."""

    name: str
    recipe: Recipe
    job: Job
    environment: dict[str, Any]
    digests: dict[int, str]
    """Of weights and buffers, by the number of steps done."""
    is_mixed: bool
    inputs: tuple[Inputs, ...] = ()
    """Which data and which code of the user's own; nothing in older runs."""
    lengths: lengths.Course = ()


@dataclass(frozen=True)
class Cause:
    """One of the things that the bits depend on, and what it is in both runs."""

    what: str
    first: Any
    second: Any

    def __str__(self) -> str:
        return f"{self.what}: {self.first!r} and {self.second!r}"


@dataclass(frozen=True)
class Parting:
    """How far two runs are known to agree."""

    compared: tuple[int, ...]
    """Steps at which both have a digest."""
    agreed: int | None
    """The last of them before the first difference; None if there is none."""
    parted: int | None
    """The first of them at which they differ; None if they never do."""


def read(directory: RunDirectory) -> Record:
    recipe, job = directory.read_config()
    rows = metrics.read(directory.metrics)
    environment = directory.read_json("environment.json")
    environment = environment if isinstance(environment, dict) else {}
    return Record(
        name=directory.name,
        recipe=runcode.with_contents(recipe),
        job=job,
        environment=provenance.facts_of(environment),
        digests={int(row["step"]): str(row["digest"]) for row in rows if _is_digest(row)},
        is_mixed=bool(environment.get("mixed")),
        inputs=inputs.read(environment),
        lengths=lengths.course(rows),
    )


def _is_digest(row: metrics.Row) -> bool:
    return row.get("kind") in ("train", "checkpoint") and row.get("digest") is not None


def parting(first: Record, second: Record) -> Parting:
    compared = sorted(first.digests.keys() & second.digests.keys())
    agreed: int | None = None
    for step in compared:
        if first.digests[step] != second.digests[step]:
            return Parting(tuple(compared), agreed, step)
        agreed = step
    return Parting(tuple(compared), agreed, None)


def causes(first: Record, second: Record) -> list[Cause]:
    """Everything that may explain it."""
    found = _differing("recipe", _bits(first.recipe), _bits(second.recipe))
    found += [
        Cause(what, _shown(one), _shown(other))
        for what, one, other in _given(first, second)
        if one is not None and other is not None and one != other
    ]
    found += _differing("strategy", _computes(first.job), _computes(second.job))
    found += _differing("environment", flat(first.environment), flat(second.environment))
    if first.is_mixed or second.is_mixed:
        found.append(Cause("workers with other arithmetic took part", first.is_mixed, second.is_mixed))
    return found


def unrecorded(first: Record, second: Record) -> list[str]:
    """What the bits depend on, and not both runs have written down."""
    return [what for what, one, other in _given(first, second) if one is None or other is None]


Course = tuple[tuple[int, str], ...]


def _given(first: Record, second: Record) -> Iterator[tuple[str, Course | None, Course | None]]:
    """Data, code of the user's own and lengths, and what both runs know of each."""

    def both(kind: str, name: str) -> tuple[Course | None, Course | None]:
        return inputs.course(first.inputs, kind, name), inputs.course(second.inputs, kind, name)

    yield "the data", *both("data", "train")
    if "mean-image" in (first.recipe.data.standardize, second.recipe.data.standardize):
        yield "the mean image", *both("data", "mean_image")
    for role, name in _own_code(first, second).items():
        yield f"the code of {name}", *both("code", role)
    if any(len(one.lengths) > 1 and _follows_length(one) for one in (first, second)):
        yield "the length in steps", _lengths(first), _lengths(second)


def _follows_length(record: Record) -> bool:
    return lengths.is_followed(record.recipe) or strategies.bits(record.job) == "own"


def _lengths(record: Record) -> Course | None:
    known = tuple((step, str(length)) for step, length in record.lengths if length is not None)
    return known if known and len(known) == len(record.lengths) else None


def _own_code(first: Record, second: Record) -> dict[str, str]:
    """What both have; where only one does, the recipes differ."""
    one, other = inputs.own_code(first.recipe), inputs.own_code(second.recipe)
    return {role: references.short(name) for role, name in one.items() if role in other}


def _shown(course: Course) -> str:
    return ", ".join(f"from step {step} on {sum_[:12]}" if step else sum_[:12] for step, sum_ in course)


def _bits(recipe: Recipe) -> dict[str, Any]:
    found = flat(dataclasses.asdict(recipe))
    return {
        key: value
        for key, value in found.items()
        if not any(key == neutral or key.startswith(f"{neutral}.") for neutral in NEUTRAL)
    }


def _computes(job: Job) -> dict[str, Any]:
    """What of a job the bits depend on: nothing, where the strategy is a synchronous one."""
    bits = strategies.bits(job)
    if bits == "common":
        return {"bits": "synchronous"}
    plain = {"bits": job.strategy if bits == "own" else "not reproducible"}
    return plain | {name: getattr(job, name) for name in strategies.STRATEGIES[job.strategy].options}


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested dictionaries as one, with dots in its keys."""
    if not isinstance(value, Mapping):
        return {prefix[:-1]: value}
    return {key: leaf for name, inner in value.items() for key, leaf in flat(inner, f"{prefix}{name}.").items()}


def _differing(kind: str, first: dict[str, Any], second: dict[str, Any]) -> list[Cause]:
    keys = [*first, *(key for key in second if key not in first)]
    return [
        Cause(f"{kind} {key}", first.get(key), second.get(key)) for key in keys if first.get(key) != second.get(key)
    ]


def text(first: Record, second: Record, known: Parting, found: Found | None, why_not: str | None) -> str:
    """What a person wants to know, in a few sentences; `why_not` says why the steps were not done again."""
    names = f"{first.name} and {second.name}"
    if not known.compared:
        return (
            f"{names} have no digest of the same step, so they cannot be compared: a run records one every 100 steps, "
            "and with every checkpoint"
        )
    if known.parted is None:
        count = len(known.compared)
        times = "the one step" if count == 1 else f"all {count} steps"
        return f"{names} are the same at {times} at which both have a digest, up to step {known.compared[-1]}"
    before = "never agree" if known.agreed is None else f"agree up to step {known.agreed}"
    lines = [f"{names} {before}, and differ at step {known.parted}."]
    lines += _again(first, second, known.parted, found, why_not)
    reasons = causes(first, second)
    if reasons:
        lines += ["Of what the bits depend on, this differs:", *(f"  {reason}" for reason in reasons)]
    else:
        lines.append(_verdict(first, second))
    return "\n".join(lines)


def _verdict(first: Record, second: Record) -> str:
    """If no cause was found: no more than what is known."""
    accused = "this is a bug in Lockstep, or the hardware has computed wrongly (--verify-every finds out which worker)"
    if missing := unrecorded(first, second):
        return (
            f"Nothing that both runs have recorded differs, but they have not recorded {' and '.join(missing)}: if "
            f"that is the same in both, {accused}."
        )
    own = list(_own_code(first, second).values())
    if own:
        return (
            "Nothing that the bits depend on differs, as far as it is recorded: if what "
            f"{' and '.join(own)} import has not changed either, {accused}."
        )
    return f"Nothing that the bits depend on differs: {accused}."


def _again(first: Record, second: Record, parted: int, found: Found | None, why_not: str | None) -> list[str]:
    if found is None:
        return [f"The steps in between were not done again: {why_not}."] if why_not else []
    if found.step is not None:
        where = "before the first step" if found.step == 0 else f"in step {found.step}"
        size = "" if found.largest == float("inf") else f", by up to {found.largest:.3g}"
        others = f", and {len(found.tensors) - 1} more" if len(found.tensors) > 1 else ""
        return [f"Done again from step {found.start}, they part {where}: {found.tensors[0]} differs{size}{others}."]
    digest = found.digests[0]
    right = [record.name for record in (first, second) if record.digests[parted] == digest]
    told = f"what {right[0]} has recorded, and the other has computed something else" if right else "what neither has"
    return [f"Done again from step {found.start} on this machine, both give {digest[:12]} at step {parted}: {told}."]
