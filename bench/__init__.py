"""Lockstep measured against its peers: `make bench`, or `python -m bench [NAME ...]`. Results are in RESULTS.md.

`suite` is the comparison with everyone in one session; `__main__` holds the table of the other benchmarks, one file
each beside it. `ratio` decides what a difference means on a noisy machine, `contestants` and `everyone` run whoever is
measured, `peers/` holds who Lockstep is compared with.
"""
