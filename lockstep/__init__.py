"""Lockstep trains image classifiers on any number of workers, and the result does not depend on how many there are.

This package imports nothing heavy: `lockstep.api` is the Python face, `lockstep.cli` the command.
"""

__version__ = "0.1.0"
