"""The suites that feed the paper, each read once, at one scale each."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bench.errors import unknown
from bench.store import SuiteFolder
from bench.suite_files import load_suite, scales_of
from bench.tables.collection import Collection, Group, budgets_words, collect

SUITES = (
    *("cifar10", "cifar100", "imagenet", "sst2"),
    *("temperature", "members", "strength", "pretrained"),
)
"""The suites that the paper's tables and figures are made of."""

SCALES = ("paper", "lab", "tiny")
"""Scales from the largest to the smallest."""

DEFAULT_RESULTS = Path("results")
FOLDER = "paper"
"""Where the paper's tables and figures lie in the folder of all results."""


@dataclass(frozen=True)
class Source:
    """A suite at the scale whose results are shown.

    Attributes:
        name: of the suite that ships, such as ``cifar100``.
        scale: whose results these are; None for a suite without scales.
        collection: its runs, done or not.
        smaller: scales of which runs were started too, but that are not shown.
    """

    name: str
    scale: str | None
    collection: Collection
    smaller: tuple[str, ...] = ()

    @property
    def runs(self) -> int:
        """How many runs the suite has at this scale."""
        return len(self.collection.entries)

    @property
    def done(self) -> int:
        """How many of them have scores."""
        return self.collection.done

    @property
    def finished(self) -> int:
        """How many of them are done or can't be: nothing is left to run for those."""
        return self.done + self.collection.counts.get("not applicable", 0)

    @property
    def groups(self) -> tuple[Group, ...]:
        """Its runs by task and backbone."""
        return self.collection.groups

    @property
    def title(self) -> str:
        """Suite and scale, such as ``cifar100 at scale lab``."""
        return self.name if self.scale is None else f"{self.name} at scale {self.scale}"

    @property
    def standing(self) -> str:
        """What headers say: suite, scale, runs done, and the budget of each run."""
        budget = budgets_words(entry.spec for entry in self.collection.entries)
        return f"{self.title}: {self.done} of {self.runs} runs done ({budget})"

    @property
    def others(self) -> int:
        """How many runs lie beside them that were made with other settings."""
        return self.collection.folder.others(entry.spec for entry in self.collection.entries)

    @property
    def command(self) -> str:
        """What to type so that every run of it is done."""
        return f"sigma-bench run {self.collection.asked} --data DIR"


@dataclass(frozen=True)
class Paper:
    """Everything that the paper is made of.

    Attributes:
        results: the folder of all results.
        scale: the one that was asked for; None for the largest with results, suite by suite.
        sources: by the name of the suite; a suite that has no such scale is not there.
    """

    results: Path
    scale: str | None
    sources: Mapping[str, Source]

    @property
    def folder(self) -> SuiteFolder:
        """Where what is made of the suites lies: ``<results>/paper``."""
        return SuiteFolder(self.results, FOLDER)

    @cached_property
    def asked(self) -> str:
        """The words after a verb that ask for the same again."""
        words = [FOLDER]
        if self.scale is not None:
            words += ["--scale", self.scale]
        return shlex.join([*words, *_results_words(self.results)])

    @property
    def done(self) -> int:
        """How many runs have scores, over all suites."""
        return sum(source.done for source in self.sources.values())

    def of(self, names: Iterable[str]) -> list[Source]:
        """The sources of some suites, in the order of the names."""
        return [self.sources[name] for name in names if name in self.sources]


def collect_paper(
    results: Path = DEFAULT_RESULTS,
    scale: str | None = None,
    names: Sequence[str] = SUITES,
) -> Paper:
    """Read every suite of the paper once.

    Without `scale`, each suite is shown at the largest scale of which any run is done, or at its
    own default if none is. Each source says its scale; nothing is averaged over two of them.

    Args:
        results: the folder of all results.
        scale: one for all suites, such as ``tiny``; suites without it are left out.
        names: suites that ship.

    Raises:
        UserError: no suite has such a scale, or a suite is not what it should be.
    """
    known = {name: scales_of(name) for name in names}
    if scale is not None and not any(scale in scales for scales in known.values()):
        every = dict.fromkeys([*SCALES, *(one for scales in known.values() for one in scales)])
        raise unknown("--scale", scale, every)
    found = {}
    for name, scales in known.items():
        if scale is None:
            found[name] = _largest(results, name, scales)
        elif scale in scales:
            found[name] = Source(name, scale, _collected(results, name, scale))
    return Paper(results, scale, found)


def _largest(results: Path, name: str, scales: Sequence[str]) -> Source:
    """A suite at the largest scale that has results, else at its default, the first of `scales`."""
    if not scales:
        return Source(name, None, _collected(results, name, None))
    started = [scale for scale in _by_size(scales) if _has_runs(results, name, scale)]
    for place, scale in enumerate(started):
        collection = _collected(results, name, scale)
        if collection.done:
            return Source(name, scale, collection, tuple(started[place + 1 :]))
    return Source(name, scales[0], _collected(results, name, scales[0]))


def _by_size(scales: Sequence[str]) -> list[str]:
    """From the largest to the smallest; scales of another name last, as they come."""
    return sorted(scales, key=lambda scale: SCALES.index(scale) if scale in SCALES else len(SCALES))


def _has_runs(results: Path, name: str, scale: str) -> bool:
    """Whether any run of this scale was ever started; it reads no run."""
    return (SuiteFolder(results, load_suite(name, (), scale).name).path / "runs").is_dir()


def _collected(results: Path, name: str, scale: str | None) -> Collection:
    suite = load_suite(name, (), scale)
    words = [name, *(() if scale is None else ("--scale", scale)), *_results_words(results)]
    return collect(suite, SuiteFolder(results, suite.name), shlex.join(words))


def _results_words(results: Path) -> list[str]:
    return [] if results == DEFAULT_RESULTS else ["--results", str(results)]
