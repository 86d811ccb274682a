"""Mean uncertainty of out-of-distribution samples, from the records of each run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bench.files import Damaged, file_digest, read_records
from bench.tables.collection import Entry, Group
from bench.tables.scores import Key, lookup

PARTS = {
    "entropy": "Total",
    "expected_entropy": "Aleatoric",
    "mutual_information": "Modulation",
}
"""Column of the records -> what the decomposition calls it."""

RECORDS = "records/ood.parquet"


class OutlierRecords:
    """The means over near and over far samples, each run's records read once.

    Sources count alike, as in the detection scores: a mean over sources of means over samples.
    """

    def __init__(self) -> None:
        self._means: dict[str, dict[tuple[str, str], float]] = {}
        self._unread: dict[str, str] = {}

    def value(self, entry: Entry, key: Key) -> Any:
        """A run's metric; ``(near or far, part)`` comes from its records, others from its scores.

        None where it has none: no such source, no members, or no records that can be trusted.
        """
        if key[0] not in ("near", "far"):
            return lookup(entry.metrics or {}, key)
        run = entry.spec.id
        if run not in self._means:
            self._means[run] = self._read(entry)
        return self._means[run].get((key[0], key[1]))

    def notes(self, groups: Sequence[Group]) -> Iterable[str]:
        """How many runs lack records although they have scores of such samples."""
        runs = [e for g in groups for e in g.done if _promised(e) is not None]
        for entry in runs:
            self.value(entry, ("near", "entropy"))
        missing = sum(entry.spec.id in self._unread for entry in runs)
        if missing:
            yield (
                f"The records of out-of-distribution samples of {missing} runs are missing or "
                "damaged; their means leave these runs out."
            )

    def _read(self, entry: Entry) -> dict[tuple[str, str], float]:
        promised = _promised(entry)
        if promised is None:
            return {}
        path = entry.folder.path / RECORDS
        try:
            if file_digest(path) != promised:
                raise Damaged(f"{path}: content and digest disagree")
            present = [n for n in PARTS if n != "mutual_information" or _has_members(entry)]
            frame = read_records(path, ["source", "distance", *present])
        except (FileNotFoundError, Damaged) as error:
            self._unread[entry.spec.id] = str(error)
            return {}
        by_source = frame.groupby(["distance", "source"])[present].mean()
        means = by_source.groupby("distance").mean()
        return {
            (str(distance), name): float(means.loc[distance, name])
            for distance in means.index
            for name in present
        }


def _promised(entry: Entry) -> str | None:
    """The digest of the records, if the run has them."""
    found = lookup(entry.metrics or {}, ("files", RECORDS))
    return None if found is None else str(found)


def _has_members(entry: Entry) -> bool:
    return lookup(entry.metrics or {}, ("test", "mutual_information")) is not None
