"""Stand-ins for Slurm's commands, which keep their queue in a JSON file beside them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "srun")
SCRIPT = """#!{python}
import sys
sys.path.insert(0, {folder!r})
import fake_slurm
sys.exit(fake_slurm.{command}(sys.argv[1:], {state!r}))
"""


class Fake:
    """The queue as a test sees and sets it."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.state = folder / "queue.json"
        self.bin.mkdir()
        self.write({"next": 100, "jobs": {}, "down": False, "calls": []})
        here = str(Path(__file__).parent)
        for command in COMMANDS:
            path = self.bin / command
            path.write_text(
                SCRIPT.format(
                    python=sys.executable, folder=here, command=command, state=str(self.state)
                )
            )
            path.chmod(0o755)

    def read(self) -> dict[str, Any]:
        return json.loads(self.state.read_text())

    def write(self, content: dict[str, Any]) -> None:
        self.state.write_text(json.dumps(content))

    def change(self, job: str, state: str | None) -> None:
        """Set the state of ``ARRAY_INDEX``; None takes it out of the queue."""
        content = self.read()
        array, index = job.split("_")
        tasks = content["jobs"][array]["tasks"]
        if state is None:
            del tasks[index]
        else:
            tasks[index] = state
        self.write(content)

    def down(self, down: bool = True) -> None:
        self.write({**self.read(), "down": down})


def _open(state: str, command: str, words: list[str]) -> dict[str, Any] | None:
    path = Path(state)
    content = json.loads(path.read_text())
    content["calls"].append([command, *words])
    path.write_text(json.dumps(content))
    if content["down"]:
        print(f"{command}: error: Unable to contact slurm controller", file=sys.stderr)
        return None
    return content


def sbatch(words: list[str], state: str) -> int:
    content = _open(state, "sbatch", words)
    if content is None:
        return 1
    lines = Path(words[0]).read_text().splitlines()
    options = dict(
        line.removeprefix("#SBATCH --").split("=", 1)
        for line in lines
        if line.startswith("#SBATCH") and "=" in line
    )
    if options.get("partition") == "nowhere":
        print("sbatch: error: invalid partition specified: nowhere", file=sys.stderr)
        print("sbatch: error: Batch job submission failed: Invalid partition", file=sys.stderr)
        return 1
    number = str(content["next"])
    content["next"] += 1
    last = int(options["array"].split("%")[0].split("-")[1])
    content["jobs"][number] = {
        "name": options["job-name"],
        "tasks": {str(index): "PENDING" for index in range(last + 1)},
        "script": lines,
    }
    Path(state).write_text(json.dumps(content))
    print(f"Submitted batch job {number}")
    return 0


def squeue(words: list[str], state: str) -> int:
    content = _open(state, "squeue", words)
    if content is None:
        return 1
    names = next(word.removeprefix("--name=") for word in words if word.startswith("--name="))
    for number, job in content["jobs"].items():
        if job["name"] in names.split(","):
            for index, how in job["tasks"].items():
                node = "node7" if how == "RUNNING" else ""
                why = "Priority" if how == "PENDING" else "None"
                print(f"{number}|{index}|{how}|{node}|{job['name']}|{why}")
    return 0


def scancel(words: list[str], state: str) -> int:
    content = _open(state, "scancel", words)
    if content is None:
        return 1
    for number in words:
        content["jobs"].pop(number)
    Path(state).write_text(json.dumps(content))
    return 0


def scontrol(words: list[str], state: str) -> int:
    if _open(state, "scontrol", words) is None:
        return 1
    print("MaxArraySize            = 4")
    return 0


def srun(words: list[str], state: str) -> int:
    return 0
