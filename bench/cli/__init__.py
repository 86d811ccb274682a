"""The command line. Nothing heavy is imported before a verb needs it."""

from bench.cli.app import run

__all__ = ["run"]
