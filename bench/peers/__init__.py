"""Whom Lockstep is measured against: loops as one would write them without it."""
