"""A training script of the user's own, under `lockstep launch` or by itself: `lockstep.job` and what it returns."""
