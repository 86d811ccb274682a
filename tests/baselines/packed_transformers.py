"""Small transformers to pack, and the parts of their parameters that belong to a member."""

import torch
from timm.models import VisionTransformer
from torch import nn

from baselines.packed_ensemble import PackedEnsemble

WITH_TOKEN = {"class_token": True, "global_pool": "token"}
EVERYTHING = {
    **WITH_TOKEN,
    "qk_norm": True,
    "init_values": 0.3,
    "reg_tokens": 1,
    "scale_mlp_norm": True,
    "drop_path_rate": 0.2,
    "attn_drop_rate": 0.1,
    "proj_drop_rate": 0.1,
    "drop_rate": 0.1,
}
SHAPE = (3, 8, 8)
CLASSES = 5
TOKENS = ("cls_token", "reg_token", "pos_embed", "class_token", "pos_embedding")
"""Parameters whose features are the last axis; members divide the first axis of all others."""


def vit(width: int = 32, heads: int = 4, **options) -> VisionTransformer:
    plain = {"class_token": False, "global_pool": "avg", "depth": 2, "mlp_ratio": 2.0}
    return VisionTransformer(
        img_size=8,
        patch_size=4,
        num_classes=CLASSES,
        embed_dim=width,
        num_heads=heads,
        **{**plain, **options},
    )


def packed(members: int = 4, alpha: float = 2.0, gamma: int = 1, **options) -> nn.Module:
    """A packed transformer all of whose parameters are random."""
    torch.manual_seed(0)
    method = PackedEnsemble(members=members, alpha=alpha, gamma=gamma)
    return randomised(method.build(vit(**options), CLASSES))


@torch.no_grad()
def randomised(model: nn.Module) -> nn.Module:
    for parameter in model.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def own(name: str, value: torch.Tensor, member: int, members: int) -> torch.Tensor:
    return value.chunk(members, -1 if name.endswith(TOKENS) else 0)[member]
