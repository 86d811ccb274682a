"""``python -m bench`` and ``sigma-bench``."""

import sys


def main() -> None:
    """Run the command line."""
    from bench.cli import run

    sys.exit(run())


if __name__ == "__main__":
    main()
