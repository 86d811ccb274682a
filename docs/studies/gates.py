"""Print how many members share a feature after training, beside the closed-form share.

Reads the gate logits of every finished σN-Ens run of a suite.

Usage: python docs/studies/gates.py docs/studies/dial.yaml results
"""

import sys
from pathlib import Path

import torch

from bench.store import SuiteFolder
from bench.suite_files import load_suite
from bench.weights import load_tensors
from sigma_nens import equilibrium_share


def main() -> None:
    """One line a run: backbone, label, seed, gates, members per feature."""
    suite = load_suite(sys.argv[1])
    folder = SuiteFolder(Path(sys.argv[2]), suite.name)
    print("| backbone | method | seed | polarised gates | members that share a feature | k* |")
    print("|---|---|---|---|---|---|")
    for run in suite.runs():
        path = folder.run(run).model_path
        if run.method != "sigma_nens" or not path.exists():
            continue
        tensors, _ = load_tensors(path)
        logits = [value for name, value in tensors.items() if name.endswith("gate_logits")]
        gates = torch.cat(logits, dim=1).sigmoid()
        polarised = ((gates < 0.1) | (gates > 0.9)).float().mean()
        # The participation ratio: k equal gates and M - k closed ones count as k.
        sharing = (gates.sum(0) ** 2 / gates.square().sum(0)).mean()
        members = run.parameters["members"]
        wanted = members * equilibrium_share(run.parameters["temperature"])
        print(
            f"| {run.backbone} | {run.label} | {run.seed} | {polarised:.2f} "
            f"| {sharing:.2f} | {wanted:.2f} |"
        )


if __name__ == "__main__":
    main()
