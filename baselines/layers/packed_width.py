"""How wide a packed network is, and how its layers are named."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from bench.errors import NotApplicable


@dataclass(frozen=True)
class Packing:
    """How wide a packed network is, and how it is divided.

    Attributes:
        members: M.
        alpha: width of all members together over the backbone's.
        gamma: groups of each layer of a member.
    """

    members: int
    alpha: float
    gamma: int

    def width(self, place: str, count: int, groups: int, what: str = "channels") -> int:
        """α times a count of channels (or heads), where `groups` divides it without a rest.

        Raises:
            NotApplicable: it isn't a whole number, or they don't.
        """
        wide = self.alpha * count
        whole = round(wide)
        if abs(wide - whole) > 1e-9 * wide or whole % groups:
            symbol = "C" if what == "channels" else "H"
            raise NotApplicable(
                f"{place}: α·{symbol} = {self.alpha:g}·{count} {what} don't divide into {groups} "
                f"equal groups (M = {self.members}, γ = {self.gamma})"
            )
        return whole


def qualified(module: nn.Module) -> str:
    """The full name of its class, such as ``torch.nn.modules.linear.Linear``."""
    cls = type(module)
    return f"{cls.__module__}.{cls.__qualname__}"


def place_of(name: str, module: nn.Module) -> str:
    """What a refusal calls a layer: its name in the network and its class."""
    own = type(module).__module__.startswith("torch.")
    kind = type(module).__name__ if own else qualified(module)
    return f"layer {name!r} ({kind})" if name else f"the network ({kind})"
