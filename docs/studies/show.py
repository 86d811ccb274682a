"""Print what a study decides on: means over seeds of validation scores, from ``runs.csv``.

Usage: python docs/studies/show.py results/photos/tables/runs.csv
"""

import sys

import pandas as pd

COLUMNS = {
    "validation.nll": "NLL",
    "validation.accuracy": "accuracy",
    "validation.ece": "ECE",
    "validation.mutual_information": "mutual information",
    "validation.disagreement": "disagreement",
}


def main() -> None:
    """Group by backbone and name, in the order of the suite."""
    runs = pd.read_csv(sys.argv[1])
    runs = runs[runs["state"] == "done"]
    groups = runs.groupby(["backbone", "method"], sort=False)
    means = groups[list(COLUMNS)].mean().rename(columns=COLUMNS)
    spread = groups["validation.nll"].std()
    means.insert(1, "± (seeds)", spread)
    means.insert(0, "n", groups.size())
    print(means.reset_index().to_markdown(index=False, floatfmt=".4f", missingval="–"))


if __name__ == "__main__":
    main()
