"""Lockstep measured against its peers: `python -m bench [NAME ...]`, or `make bench`. Results are in RESULTS.md.

`__main__` holds the table of benchmarks, one file each beside it. `ratio` decides what a difference means on a noisy
machine, `contestants` runs whoever is measured, `peers/` holds who Lockstep is compared with.
"""
