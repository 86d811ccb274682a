"""What methods with member norms need of a backbone."""

from __future__ import annotations

from typing import Literal

from torch import nn

from sigma_nens import UnsupportedModuleError, find_head, find_norms


def obstacle(backbone: nn.Module, head: Literal["member", "shared"]) -> str | None:
    """Why a backbone can't be given member norms and heads, naming the layer; None when it can."""
    try:
        find_norms(backbone)
        if head == "member":
            find_head(backbone)
    except UnsupportedModuleError as error:
        return str(error)
    return None
