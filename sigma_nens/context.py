"""What the layers of an ensemble must know about the batch that passes through them."""

from __future__ import annotations


class UnsupportedModuleError(ValueError):
    """A module that can't be turned into members; the message names it and says why."""


class MemberContext:
    """Which members a folded batch holds, shared by all member layers of one ensemble.

    The ensemble writes it at the start of each forward and it stays as it is until the next one, so
    that a backward pass which recomputes activations (activation checkpointing) finds the right
    members, as long as it runs before the next forward.

    Attributes:
        members: M, how many members there are.
        start: the first active member.
        stop: one past the last active member; ``m = stop - start`` are active.
        batch: B, the samples of the batch before folding; None outside an ensemble, where a layer
            takes its first dimension to be ``B * M``.
    """

    def __init__(self, members: int) -> None:
        if isinstance(members, bool) or not isinstance(members, int) or members < 1:
            raise ValueError(f"members must be an integer of at least 1, got {members!r}")
        self.members = members
        self.start = 0
        self.stop = members
        self.batch: int | None = None

    @property
    def active(self) -> int:
        """m, the number of active members."""
        return self.stop - self.start

    def activate(self, start: int, stop: int, batch: int | None) -> None:
        """Set what the next batch holds.

        Args:
            start: the first active member.
            stop: one past the last active member.
            batch: B, the samples before folding.
        """
        self.start, self.stop, self.batch = start, stop, batch

    def samples(self, rows: int, layer: str) -> int:
        """B for a layer whose input has so many rows.

        Args:
            rows: the size of the input's first dimension: ``B * m * r``, where r > 1 rows of one
                sample and member may follow each other (the windows of a Swin transformer).
            layer: the layer's dotted name, for the message.

        Raises:
            ValueError: if the rows can't be a folded batch.
        """
        batch = rows // self.active if self.batch is None else self.batch
        folded = batch * self.active
        if folded == 0 or rows % folded:
            expected = f"a multiple of {self.active} members"
            if self.batch is not None:
                expected = f"a multiple of {self.batch} samples × {self.active} members"
            raise ValueError(
                f"{layer}: the first dimension of the input has {rows} rows, expected {expected}; "
                "the batch must stay on dimension 0"
            )
        return batch


def resolve_members(members: slice | None, total: int) -> tuple[int, int]:
    """The first member and one past the last of a slice.

    Args:
        members: a slice with a step of 1 inside ``[0, total]``, or None for all.
        total: M.

    Raises:
        ValueError: for an empty slice, another step, or a bound outside ``[0, total]``.
        TypeError: if it is no slice.
    """
    if members is None:
        return 0, total
    if not isinstance(members, slice):
        raise TypeError(f"members must be a slice or None, got {members!r}")
    start = 0 if members.start is None else members.start
    stop = total if members.stop is None else members.stop
    if members.step not in (None, 1):
        raise ValueError(f"members: the step must be 1, got {members!r}")
    if not 0 <= start < stop <= total:
        raise ValueError(f"members: need 0 <= start < stop <= {total}, got {members!r}")
    return start, stop
