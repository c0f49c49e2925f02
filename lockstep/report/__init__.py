"""Reports: they read the files of run directories and nothing else."""
