"""Everything that a suite's tables, figures and report are made of, read in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bench.files import Damaged, file_digest
from bench.recipe import Budget
from bench.store import RunFolder, State, SuiteFolder
from bench.suite import RunSpec, Suite, TaskSpec


@dataclass(frozen=True)
class Entry:
    """One run of the matrix and how it stands.

    Attributes:
        spec: what was asked.
        folder: where it is stored.
        state: as `bench.store` names it.
        reason: the error of a failed run, the reason of one that does not apply, else empty.
        metrics: the content of `metrics.json`; None unless the state is ``done``.
    """

    spec: RunSpec
    folder: RunFolder
    state: State
    reason: str
    metrics: dict[str, Any] | None


@dataclass(frozen=True)
class MethodRuns:
    """The runs of one method (a label of the suite) on one task and backbone, in seed order."""

    label: str
    entries: tuple[Entry, ...]

    @cached_property
    def members(self) -> int:
        """M, as the suite asks for it."""
        return int(self.entries[0].spec.parameters.get("members", 1))

    @cached_property
    def done(self) -> tuple[Entry, ...]:
        """The runs that have scores."""
        return tuple(entry for entry in self.entries if entry.metrics is not None)


@dataclass(frozen=True)
class Group:
    """What is compared with each other: all methods on one task with one backbone."""

    task: str
    backbone: str
    methods: tuple[MethodRuns, ...]

    @property
    def title(self) -> str:
        """What headings call the group."""
        return f"{self.task}, {self.backbone}"

    @property
    def done(self) -> list[Entry]:
        """Every run of the group that has scores."""
        return [entry for method in self.methods for entry in method.done]

    @property
    def shift_origin(self) -> str:
        """``official`` or ``generated``; ``mixed origin`` if runs disagree, empty if none is."""
        found = {
            str(entry.metrics["task"]["shift_origin"])
            for entry in self.done
            if entry.metrics and entry.metrics.get("shift")
        }
        return found.pop() if len(found) == 1 else "mixed origin" if found else ""


@dataclass(frozen=True)
class Collection:
    """All runs of a suite.

    Attributes:
        suite: the suite.
        folder: its results.
        entries: one for each run of the matrix, in the suite's order.
        asked: how the command line names the suite, for the commands that tables quote.
    """

    suite: Suite
    folder: SuiteFolder
    entries: tuple[Entry, ...]
    asked: str

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The runs by task and backbone, methods in the suite's order."""
        names = task_labels(entry.spec.task for entry in self.entries)
        sorted_out: dict[tuple[str, str], dict[str, list[Entry]]] = {}
        for entry in self.entries:
            task = names[_task_key(entry.spec.task)]
            methods = sorted_out.setdefault((task, entry.spec.backbone), {})
            methods.setdefault(entry.spec.label or entry.spec.method, []).append(entry)
        return tuple(
            Group(
                task, backbone, tuple(_method_runs(label, runs) for label, runs in methods.items())
            )
            for (task, backbone), methods in sorted_out.items()
        )

    @property
    def counts(self) -> dict[State, int]:
        """How many runs stand how."""
        return dict(Counter(entry.state for entry in self.entries))

    @property
    def done(self) -> int:
        """How many runs have scores."""
        return self.counts.get("done", 0)

    @cached_property
    def reference(self) -> str | None:
        """The label that paired differences refer to: the suite's, or the first with members."""
        if self.suite.reference is not None:
            return self.suite.reference
        methods = [method for group in self.groups for method in group.methods]
        return next((method.label for method in methods if method.members > 1), None)

    @cached_property
    def damages(self) -> dict[str, str]:
        """Run id -> what is wrong with the per-sample records of its test split, if anything is.

        Such a run keeps its scores; what is made from records leaves it out, and the gaps name it.
        """
        found = {}
        for entry in self.entries:
            if entry.metrics is not None and (damage := _records_damage(entry)):
                found[entry.spec.id] = damage
        return found

    def sound(self, method: MethodRuns) -> list[Entry]:
        """The runs of a method that are done and whose test records can be trusted."""
        return [entry for entry in method.done if entry.spec.id not in self.damages]

    @property
    def method_labels(self) -> list[str]:
        """Every method's label once, in the suite's order."""
        return list(dict.fromkeys(m.label for group in self.groups for m in group.methods))


def collect(suite: Suite, folder: SuiteFolder, asked: str | None = None) -> Collection:
    """Read every run of a suite once.

    Args:
        suite: the matrix.
        folder: its results.
        asked: what stands after ``sigma-bench tables`` to get this suite (a file, options);
            by default its name.

    Raises:
        UserError: the matrix names a method that does not exist.
    """
    entries = tuple(_read(spec, folder.run(spec)) for spec in suite.runs())
    return Collection(suite, folder, entries, asked or suite.name)


def _read(spec: RunSpec, folder: RunFolder) -> Entry:
    # The scores are read first, and alone: asking for the state of a finished run reads them again.
    try:
        metrics = folder.metrics()
    except Damaged:
        metrics = None
    if metrics is not None:
        return Entry(spec, folder, "done", "", metrics)
    state, reason = folder.state()
    if state == "done":
        # It ended between the two looks.
        return Entry(spec, folder, "done", "", folder.metrics())
    return Entry(spec, folder, state, reason, None)


def _records_damage(entry: Entry) -> str:
    path = entry.folder.records_path("test")
    promised = (entry.metrics or {}).get("files", {}).get("records/test.parquet")
    if not path.exists():
        return "records/test.parquet: is missing; run again to redo it"
    if file_digest(path) != promised:
        return "records/test.parquet: content and digest disagree; run again to redo it"
    return ""


def _method_runs(label: str, entries: list[Entry]) -> MethodRuns:
    return MethodRuns(label, tuple(sorted(entries, key=lambda entry: entry.spec.seed)))


def task_labels(tasks: Iterable[TaskSpec]) -> dict[str, str]:
    """What tables call each task: its name, with the options that tell two of one name apart."""
    distinct = {_task_key(task): task for task in tasks}
    labels = {}
    for key, task in distinct.items():
        others = [one for one in distinct.values() if one.name == task.name and one is not task]
        own = ", ".join(
            f"{name}={value}"
            for name, value in task.options.items()
            if any(name not in other.options or other.options[name] != value for other in others)
        )
        labels[key] = f"{task.name} ({own})" if own else task.name
    return labels


def _task_key(task: TaskSpec) -> str:
    return task.model_dump_json()


def budget_words(budget: Budget) -> str:
    """A budget in words: what was matched, and to what."""
    what = {
        "epochs": "every network sees the training set for",
        "train_flops": "as many train FLOPs as",
        "device_seconds": "as many device seconds as",
    }[budget.match]
    epochs = f"{budget.epochs:g} epoch{'' if budget.epochs == 1 else 's'}"
    if budget.match == "epochs":
        return f"{what} {epochs}"
    plural = "" if budget.networks == 1 else "s"
    return f"{what} {budget.networks} single network{plural} trained for {epochs}"


def budgets_words(runs: Iterable[RunSpec]) -> str:
    """The budgets of a suite in words; where they differ, with the backbones of each."""
    backbones: dict[str, list[str]] = {}
    for run in runs:
        names = backbones.setdefault(budget_words(run.budget), [])
        if run.backbone not in names:
            names.append(run.backbone)
    if len(backbones) == 1:
        return next(iter(backbones))
    return "; ".join(f"{words} ({', '.join(names)})" for words, names in backbones.items())


def header(collection: Collection, command: str = "tables") -> str:
    """The line that every table begins with: suite, runs, budget, and how to make it again."""
    return (
        f"Suite {collection.suite.name}: {collection.done} of {len(collection.entries)} runs done; "
        f"budget: {budgets_words(entry.spec for entry in collection.entries)}; "
        f"made with `sigma-bench {command} {collection.asked}`."
    )
