"""Runs on a Slurm cluster: submitted, requeued, followed and cancelled; the truth is on disk."""
