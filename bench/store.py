"""Results on disk: run folders that are locked, resumable and checked when read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from bench.errors import UserError
from bench.files import Damaged, file_digest, read_json, stored_value, write_json, write_text
from bench.locks import Busy as Busy
from bench.locks import FolderLock, Held, Holder
from bench.suite import RunSpec

State = Literal["done", "running", "queued", "failed", "not applicable", "interrupted", "not run"]
"""How a run stands. Only the queue of a cluster knows which are ``queued``: the disk does not."""
SIGNED = ("spec.json", "environment.json", "plan.json", "training.json")
"""Files of a run that carry their own digest; published runs, and old ones, may lack some."""
LOCK_PATIENCE = 0.5
"""Seconds to try for a run folder, so that a moment's coincidence is no refusal."""


class RunFolder:
    """The folder of one run. `metrics.json` is written last: its presence means «done»."""

    def __init__(self, path: Path, spec: RunSpec) -> None:
        self.path = path
        self.spec = spec
        self._held: Held | None = None

    @property
    def metrics_path(self) -> Path:
        """Where the run's scores are."""
        return self.path / "metrics.json"

    @property
    def model_path(self) -> Path:
        """Where the trained weights are."""
        return self.path / "model.safetensors"

    @property
    def checkpoints(self) -> Path:
        """Where resumable states are, one file a network; gone when the run is done."""
        return self.path / "checkpoint"

    def records_path(self, split: str) -> Path:
        """Where a split's per-sample records are."""
        return self.path / "records" / f"{split}.parquet"

    @contextmanager
    def lock(self, patience: float = LOCK_PATIENCE) -> Iterator[None]:
        """Hold the folder; a process that dies, or whose node does, lets go (see `bench.locks`).

        Raises:
            Busy: another process holds it.
            UserError: the folder can't be written.
        """
        with ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                self._held = stack.enter_context(FolderLock(self.path).hold(patience))
                for leftover in self.path.rglob(".*.tmp"):
                    leftover.unlink(missing_ok=True)
            except OSError as error:
                raise UserError(
                    f"results folder {self.path}: can't be written ({error.strerror}): "
                    f"choose another with --results"
                ) from None
            try:
                yield
            finally:
                self._held = None

    def holder(self) -> Holder | None:
        """Who works in the folder now, or None."""
        return FolderLock(self.path).holder()

    def is_locked(self) -> bool:
        """Whether a process works in the folder now."""
        return self.holder() is not None

    def _check_held(self) -> None:
        """Write nothing into a folder that another process has taken over."""
        if self._held is not None:
            self._held.check()

    def check_backbone(self, digest: str | None) -> None:
        """Refuse to go on with what other pretrained weights were the start of.

        Args:
            digest: what `bench.backbones.backbone_digest` gives now; kept in `environment.json`.

        Raises:
            UserError: the run is trained, in part at least, from other files.
        """
        begun = any(path.exists() for path in (self.model_path, self.checkpoints))
        if not begun and not self.metrics_path.exists():
            return
        try:
            before = read_json(self.path / "environment.json").get("backbone_digest")
        except (FileNotFoundError, Damaged):
            return
        if before is not None and before != digest:
            raise UserError(
                f"backbone {self.spec.backbone}: other weights than {self.path} was begun with "
                f"(SHA-256 {digest or 'none'}, then {before}): put the old ones back, give the new "
                "ones another name, or remove that folder"
            )

    def start(self, environment: Mapping[str, Any]) -> None:
        """Note what is asked and where it runs; forget an earlier failure."""
        self._check_held()
        identity = {"id": self.spec.id, "label": self.spec.label, **self.spec.identity}
        write_json(self.path / "spec.json", identity)
        write_json(self.path / "environment.json", environment)
        for name in ("failure.json", "not_applicable.json"):
            (self.path / name).unlink(missing_ok=True)

    def fail(self, error: str, traceback: str) -> None:
        """Keep why the run failed."""
        self._check_held()
        write_json(self.path / "failure.json", {"error": error, "traceback": traceback})

    def refuse(self, reason: str) -> None:
        """Keep why the method does not apply to this backbone."""
        self._check_held()
        write_json(self.path / "not_applicable.json", {"reason": reason})

    def finish(self, metrics: Mapping[str, Any], splits: list[str]) -> None:
        """Store the scores with their records' digests; drop the checkpoints.

        Raises:
            Busy: another process has taken the folder over.
        """
        self._check_held()
        files = {
            f"records/{split}.parquet": file_digest(self.records_path(split)) for split in splits
        }
        write_json(self.metrics_path, {"run": self.spec.id, "files": files, **metrics})
        shutil.rmtree(self.checkpoints, ignore_errors=True)

    def metrics(self) -> dict[str, Any] | None:
        """The scores, or None when the run is not done.

        Raises:
            Damaged: the file is there and can't be trusted.
        """
        try:
            content = read_json(self.metrics_path)
        except FileNotFoundError:
            return None
        if content.get("run") != self.spec.id:
            raise Damaged(f"{self.metrics_path}: belongs to the run {content.get('run')}")
        if "files" not in content:
            raise Damaged(f"{self.metrics_path}: names no files")
        return content

    def verify(self) -> bool:
        """Whether the run is done and every file, but for the weights, is what was written.

        Raises:
            Damaged: names the first file that isn't.
        """
        metrics = self.metrics()
        if metrics is None:
            return False
        for name in SIGNED:
            with suppress(FileNotFoundError):
                read_json(self.path / name)
        for name, digest in metrics["files"].items():
            path = self.path / name
            if not path.exists():
                raise Damaged(f"{path}: is missing")
            if file_digest(path) != digest:
                raise Damaged(f"{path}: content and digest disagree")
        return True

    def state(self) -> tuple[State, str]:
        """How the run stands, and the error, reason or damage when there is one."""
        try:
            if self.metrics() is not None:
                return "done", ""
        except Damaged as damage:
            return "interrupted", f"{damage}; run again to redo it"
        if self.holder() is not None:
            return "running", ""
        for name, key, state in (
            ("not_applicable.json", "reason", "not applicable"),
            ("failure.json", "error", "failed"),
        ):
            try:
                return state, str(stored_value(self.path / name, key))  # type: ignore[return-value]
            except FileNotFoundError:
                continue
            except Damaged as damage:
                return "interrupted", f"{damage}; run again to redo it"
        if (self.path / "spec.json").exists():
            return "interrupted", ""
        return "not run", ""


class Progress:
    """`progress.jsonl`: one line an epoch, append-only; what a crash cut off is dropped.

    A line is what `bench.training.Tick` holds; the first that is not ends what can be trusted.
    """

    KEYS = frozenset({"network", "networks", "step", "steps", "epoch"})
    """What a line needs to say where a run was."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[dict[str, Any]]:
        """What was noted so far."""
        if not self.path.exists():
            return []
        lines = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                content = json.loads(line)
            except (ValueError, RecursionError):
                break
            if not isinstance(content, dict) or not content.keys() >= self.KEYS:
                break
            if not all(isinstance(content[key], int | float) for key in self.KEYS):
                break
            lines.append(content)
        return lines

    def rewind(self, network: int, step: int) -> None:
        """Forget what lies after the state from which a run goes on."""
        kept = [line for line in self.lines() if (line["network"], line["step"]) <= (network, step)]
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))

    def append(self, line: Mapping[str, Any]) -> None:
        """Note an epoch.

        Raises:
            OSError: names the file, also where the system does not (when the disk is full).
        """
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, allow_nan=False) + "\n")
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error


class SuiteFolder:
    """The folder of a suite: ``<results>/<suite>``."""

    def __init__(self, results: Path, suite: str) -> None:
        self.path = results / suite

    def run(self, spec: RunSpec) -> RunFolder:
        """The folder of one run."""
        return RunFolder(self.path / "runs" / spec.id, spec)

    def others(self, specs: Iterable[RunSpec]) -> int:
        """How many runs lie here that are none of these: made with other settings."""
        names = {spec.id for spec in specs}
        runs = self.path / "runs"
        found = runs.iterdir() if runs.is_dir() else iter(())
        return sum(path.name not in names and path.is_dir() for path in found)

    @property
    def tables(self) -> Path:
        """Where tables are written."""
        return self.path / "tables"

    @property
    def figures(self) -> Path:
        """Where figures are written."""
        return self.path / "figures"

    @property
    def report(self) -> Path:
        """The report, one self-contained HTML file."""
        return self.path / "report.html"
