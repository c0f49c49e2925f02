"""Which keys of `data` mean something to some sources alone: to ask another one for them is refused, where it would
train as if nothing had been said."""

from __future__ import annotations

from collections.abc import Set

from lockstep import references
from lockstep.config import Data
from lockstep.errors import UserError

OF_LARGE_IMAGES = (
    *("label_path", "eval_label_path", "key_prefix", "background", "endpoint_url", "anonymous", "window", "framing"),
    *("side", "resize", "max_broken", "read_ahead", "cache_size"),
)
OWN = "file.py:function"
"""Stands for data of the user's own, which may be a folder of large images."""

SOURCES_OF = {
    "labels": ("cifar100",),
    **dict.fromkeys(OF_LARGE_IMAGES, ("imagenet", OWN)),
    "processes": (OWN,),
}
"""Who takes a key; all others are for every source."""
STANDARDIZE_OF = {"mean": "channel", "deviation": "channel", "mean_image": "mean-image"}
"""And the `standardize` that takes it."""
OPTIONS = {
    "label_path": "--labels",
    "eval_label_path": "--eval-labels",
    "key_prefix": "--key-prefix",
    "endpoint_url": "--endpoint-url",
    "anonymous": "--anonymous",
}
"""How a user asks for a key, if not by its name."""


def check_own(data: Data, asked: Set[str], is_framed: bool) -> None:
    """The same where only what a function of the user's own returned tells whether they are large images."""
    if is_framed or not references.is_reference(data.source):
        return
    for key in sorted(asked & set(OF_LARGE_IMAGES)):
        if getattr(data, key) != getattr(Data(), key):
            name = OPTIONS.get(key, f"data.{key}")
            raise UserError(f"{name} is for folders of images, and {data.source} returned none: leave it out")


def check_asked(data: Data, asked: Set[str]) -> None:
    """Refuse keys that were asked for and mean nothing here. What a recipe says is not asked for: it may be trained on
    other data than its own."""
    source = OWN if references.is_reference(data.source) else data.source
    for key in sorted(asked):
        name, takers = OPTIONS.get(key, f"data.{key}"), SOURCES_OF.get(key, (source,))
        if getattr(data, key) == getattr(Data(), key):
            continue
        if source not in takers:
            raise UserError(f"{name} is for the source {' or '.join(takers)}, and not for {source}: leave it out")
        if data.standardize != (wanted := STANDARDIZE_OF.get(key, data.standardize)):
            raise UserError(f"{name} is for data.standardize={wanted}, and it is {data.standardize}: set both, or none")
