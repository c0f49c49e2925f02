"""`lockstep predict`: predictions as text and as JSON. Pure."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from lockstep import strictjson

if TYPE_CHECKING:
    from lockstep.predict import Prediction


def text(predictions: list[Prediction]) -> str:
    """A line with the name of each image, and below it a line for each guess."""
    width = max((len(guess.name) for one in predictions for guess in one.guesses), default=0)
    blocks = []
    for one in predictions:
        if one.problem is None:
            lines = [f"  {guess.name:{width}}  {guess.probability:7.2%}" for guess in one.guesses]
            blocks.append("\n".join([one.image, *lines]))
    return "\n".join(blocks)


def to_plain(prediction: Prediction) -> dict[str, Any]:
    """The image, and its guesses or its problem."""
    if prediction.problem is not None:
        return {"image": prediction.image, "problem": prediction.problem}
    return {"image": prediction.image, "guesses": [dataclasses.asdict(guess) for guess in prediction.guesses]}


def to_json(prediction: Prediction) -> str:
    """One object."""
    return strictjson.dumps(to_plain(prediction))
