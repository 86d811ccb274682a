"""What methods with member norms need of a backbone."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from sigma_nens import MemberEnsemble, MemberLinear, UnsupportedModuleError, find_head, find_norms
from sigma_nens.convert import Select
from sigma_nens.kinds import is_normalisation


def obstacle(
    backbone: nn.Module, head: Literal["member", "shared"], select: Select | None = None
) -> str | None:
    """Why a backbone can't be given member norms and heads, naming the layer; None when it can."""
    try:
        find_norms(backbone, select)
        if head == "member":
            find_head(backbone)
    except UnsupportedModuleError as error:
        return str(error)
    return None


def norm_names(backbone: nn.Module) -> list[str]:
    """The dotted names of all normalisation layers, whether they could be given members or not."""
    return [name for name, module in backbone.named_modules() if is_normalisation(module)]


@torch.no_grad()
def draw_heads(ensemble: MemberEnsemble) -> None:
    """Draw the head of each member anew and on its own, where it has one.

    For networks whose weights are pretrained but for the head: a copy of one random head for every
    member would start them with the same errors.
    """
    for module in ensemble.modules():
        if isinstance(module, MemberLinear):
            fresh = MemberLinear(module.plain(0), module.members)
            module.load_state_dict(fresh.state_dict())
