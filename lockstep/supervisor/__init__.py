"""One supervisor per job: `machine` decides, `control` talks to the processes, `run` does what was decided."""
