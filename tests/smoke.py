"""A reduced run of the digits suite from the command line; its table must be complete."""

import csv
import subprocess
import sys
from pathlib import Path

METHODS = {
    "single",
    "deep_ensemble",
    "batch_ensemble",
    "packed_ensemble",
    "film_ensemble",
    "sigma_nens",
}
SCORES = ("test.accuracy", "test.nll", "test.ece", "shift.mean.ece", "cost.train_flops")


def main() -> None:
    results = Path(sys.argv[1])
    command = [sys.executable, "-m", "bench", "run", "digits", "--results", str(results)]
    command += ["--seed", "0", "--set", "budget.epochs=2"]
    subprocess.run(command, check=True)
    with (results / "digits" / "tables" / "runs.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = {row["method"] for row in rows if row["state"] == "done"}
    if found != METHODS:
        sys.exit(f"smoke: done {sorted(found)}, expected {sorted(METHODS)}")
    for row in rows:
        for score in SCORES:
            if row["state"] == "done" and not row.get(score):
                sys.exit(f"smoke: {row['method']} has no {score}")
    if not (results / "digits" / "report.html").stat().st_size:
        sys.exit("smoke: the report is empty")
    print(f"{len(found)} passed, 0 failed")


if __name__ == "__main__":
    main()
