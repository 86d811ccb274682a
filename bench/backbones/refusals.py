"""What is said where a backbone can't be had."""

from __future__ import annotations

from bench.errors import UserError


def cannot_take(name: str, input_shape: tuple[int, ...], reason: object) -> str:
    """One line: this backbone can't take such inputs, and why."""
    shape = "x".join(str(size) for size in input_shape)
    what = "images" if len(input_shape) == 3 else "texts"
    return f"backbone {name} can't take {what} of {shape}: {' '.join(str(reason).split())}"


def no_download(name: str, address: str, instead: str) -> UserError:
    """The error for weights that aren't here while there is no network."""
    return UserError(
        f"backbone {name}: its weights are not on this machine and the network can't be reached: "
        f"download {address} elsewhere, put it into the data folder and name {instead}"
    )
