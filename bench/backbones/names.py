"""The names of backbones: ``NAME``, ``NAME@pretrained`` or ``NAME@FILE``.

Importing this module imports neither torch nor a model library.
"""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

from bench.errors import UserError, unknown

TIMM = "timm:"
"""The prefix of a model of timm, such as ``timm:convnext_tiny``."""
TORCHVISION = "torchvision:"
"""The prefix of a classifier of torchvision, such as ``torchvision:resnet50``."""
HUGGING_FACE = "hf:"
"""The prefix of a text classifier of Hugging Face: a folder or a name on the hub."""
HE_RESNET = "he_resnet"
"""How the names of He et al.'s CIFAR ResNets start."""
PRETRAINED = "pretrained"
"""What follows the @ for the weights that come with a model."""
SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")
"""Endings of the names of weight files."""

_DESCRIPTIONS = {
    "resnet8": "CIFAR ResNet, 3 stages of 1 basic block, widths 16-32-64 (0.08 M parameters)",
    "resnet20": "CIFAR ResNet, 3 stages of 3 basic blocks, widths 16-32-64 (0.27 M parameters)",
    "resnet18": "ResNet-18 with a 3x3 stem and no max-pooling (11 M parameters)",
    "resnet50": "ResNet-50 with a 3x3 stem and no max-pooling (24 M parameters)",
    "wrn16_4": "Wide ResNet of depth 16 and width 4, no dropout (2.7 M parameters)",
    "wrn28_8": "Wide ResNet of depth 28 and width 8, no dropout (23 M parameters)",
    "wrn28_10": "Wide ResNet of depth 28 and width 10, no dropout (37 M parameters)",
    "he_resnet20": "CIFAR ResNet with shortcuts without weights, as published (0.27 M parameters)",
    "he_resnet32": "the same, depth 32 (0.46 M parameters)",
    "he_resnet44": "the same, depth 44 (0.66 M parameters)",
    "he_resnet56": "the same, depth 56 (0.85 M parameters)",
    "vit_pico": "vision transformer for small images, width 64, depth 4 (0.14 M parameters)",
    "vit_tiny": "vision transformer for small images, width 192, depth 9 (2.7 M parameters)",
}
_FAMILIES = {
    TIMM: "any model of timm, such as timm:convnext_tiny or timm:vit_tiny_patch16_224",
    TORCHVISION: "any classifier of torchvision, such as torchvision:resnet50",
    HUGGING_FACE: "a text classifier of Hugging Face, by folder or hub name: hf:bert-base-uncased",
}
_EXAMPLES = {TIMM: "resnet18", TORCHVISION: "resnet50", HUGGING_FACE: "bert-base-uncased"}
_WITH_WEIGHTS = "; with weights of its own as NAME@pretrained, with a file's as NAME@FILE"

# They take their tokens together with the batch for one BatchNorm1d: its rows are no samples, so
# that no member's statistics could be told from another's. timm has the same networks as CNNs.
_LEVIT, _LEVIT_CONV = "levit_", "levit_conv_"
_GATHERING = ("googlenet", "inception_v3")


def backbone_names() -> dict[str, str]:
    """Every name that can be asked for -> one line that describes it."""
    families = {f"{prefix}NAME": line + _WITH_WEIGHTS for prefix, line in _FAMILIES.items()}
    return {**_DESCRIPTIONS, **families}


def architecture(name: str) -> str:
    """The name without its weights."""
    return name.partition("@")[0]


def is_pretrained(name: str) -> bool:
    """Whether the name asks for pretrained weights: ``NAME@pretrained`` or ``NAME@FILE``."""
    return "@" in name


def weights_of(name: str) -> str:
    """What follows the @: ``pretrained`` or a file; empty for an untrained network."""
    return name.partition("@")[2]


def family(name: str) -> tuple[str, str]:
    """The prefix of a model library, or "", and the architecture's name without it."""
    plain = architecture(name)
    for prefix in _FAMILIES:
        if plain.startswith(prefix):
            return prefix, plain.removeprefix(prefix)
    return "", plain


def check_backbone_name(name: str) -> None:
    """Refuse a name that no backbone has.

    A model of timm or torchvision is looked up only if that library has been imported already: the
    import is slow, and `create_backbone` looks it up anyway. Files are not looked for.

    Raises:
        UserError: with the nearest names, or what would be right after the @.
    """
    prefix, model = family(name)
    if not prefix and model not in _DESCRIPTIONS:
        raise unknown("backbone", architecture(name), backbone_names())
    if not model:
        library = {TIMM: "timm", TORCHVISION: "torchvision", HUGGING_FACE: "Hugging Face"}[prefix]
        example = prefix + _EXAMPLES[prefix]
        raise UserError(f"unknown backbone {name!r}: name a model of {library}, such as {example}")
    _check_weights(name, prefix)
    if prefix == TIMM:
        _check_timm(name, model)
    elif prefix == TORCHVISION:
        _check_torchvision(name, model)


def weight_file(name: str, data: Path | None) -> Path | None:
    """The file that the name asks for; None for ``NAME`` and ``NAME@pretrained``.

    Args:
        name: of a backbone.
        data: the folder that a relative file lies in.

    Raises:
        UserError: there is no such file.
    """
    weights = weights_of(name)
    if weights in ("", PRETRAINED):
        return None
    path = Path(weights).expanduser()
    if not path.is_absolute():
        if data is None:
            raise UserError(f"backbone {name}: {weights} lies in a data folder: give one")
        path = data / path
    if not path.is_file():
        raise UserError(f"backbone {name}: {path}: no such file")
    return path


def _check_weights(name: str, prefix: str) -> None:
    if not is_pretrained(name):
        return
    weights, plain = weights_of(name), architecture(name)
    if not weights:
        raise UserError(f"backbone {name}: which weights? write {plain}@FILE")
    if weights == PRETRAINED:
        if not prefix:
            raise UserError(f"backbone {name}: no weights come with it: write {plain}@FILE")
        return
    if Path(weights).suffix not in SUFFIXES:
        raise UserError(
            f"backbone {name}: weights {weights!r} are neither {PRETRAINED!r} nor a file that ends "
            f"in {', '.join(SUFFIXES)}"
        )


def _check_timm(name: str, model: str) -> None:
    if model.startswith(_LEVIT) and not model.startswith(_LEVIT_CONV):
        instead = TIMM + model.replace(_LEVIT, _LEVIT_CONV, 1)
        raise UserError(
            f"backbone {name}: its BatchNorm takes tokens for samples, which members can't share: "
            f"take the same network as {instead}"
        )
    if "timm" not in sys.modules:
        return
    import timm

    if not timm.is_model(model):
        known = timm.list_models()
        raise _no_such_model(name, f"timm {timm.__version__}", TIMM, model, known)


def _check_torchvision(name: str, model: str) -> None:
    if model in _GATHERING:
        raise UserError(
            f"backbone {name}: gives several outputs while it is trained: take timm:{model}"
        )
    if "torchvision" not in sys.modules:
        return
    import torchvision

    known = torchvision.models.list_models(module=torchvision.models)
    if model not in known:
        library = f"torchvision {torchvision.__version__}"
        raise _no_such_model(name, library, TORCHVISION, model, known)


def _no_such_model(name: str, library: str, prefix: str, model: str, known: list[str]) -> UserError:
    near = difflib.get_close_matches(model, known, n=3, cutoff=0.5)
    names = " or ".join(prefix + close for close in near)
    package = prefix.removesuffix(":")
    hint = f"did you mean {names}?" if near else f"{package}'s list_models() lists them"
    return UserError(f"unknown backbone {name!r}: {library} has no such model: {hint}")
