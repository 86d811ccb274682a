"""Text classifiers of Hugging Face, and what cuts texts into their tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.backbones.heads import mark_fresh_head
from bench.backbones.hub import quick_hub
from bench.backbones.names import architecture, family, is_pretrained, weight_file
from bench.backbones.refusals import cannot_take
from bench.backbones.weights import read_weights, without_prefixes
from bench.errors import UserError

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_POOLER = "pooler."
"""Of encoders: it feeds the head alone, and files without a head often lack it too."""


_WARNING = "warn_if_padding_and_no_attention_mask"
"""A method that reads token ids where there is no mask, which ids without values can't have."""


def _silent(*_: object) -> None:
    """Warn of nothing: wherever ids have values, they have their mask."""


class TextClassifier(nn.Module):
    """A text classifier of Hugging Face as a function of token ids.

    Args:
        network: gives an object with ``logits`` for ``input_ids`` and ``attention_mask``.
        pad: the token that fills texts up at their end; it is attended to by no other.

    Shape:
        token ids int64 ``[B, L] -> [B, K]``.
    """

    def __init__(self, network: nn.Module, pad: int) -> None:
        super().__init__()
        self.network = network
        self.pad = pad
        for module in network.modules():
            if hasattr(module, _WARNING):
                setattr(module, _WARNING, _silent)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits."""
        # Without values there is nothing to mask, but a library that looks at the mask to see
        # whether it can do without; that costs no FLOPs.
        mask = None if ids.is_meta else (ids != self.pad).long()
        logits: Tensor = self.network(input_ids=ids, attention_mask=mask).logits
        return logits


@dataclass(frozen=True)
class Tokenizer:
    """What cuts texts into the tokens of a backbone.

    Attributes:
        name: of the backbone, without its weights.
        pad: the token id that fills texts up.
    """

    name: str
    pad: int
    _cut: Callable[..., Any] = field(repr=False, compare=False)

    def encode(self, texts: Sequence[str], max_length: int) -> Tensor:
        """Token ids, with the model's special tokens, cut and filled up to one length.

        Args:
            texts: N of them.
            max_length: L, at least 1.

        Returns:
            int64 ``[N, L]``, filled up at the end with `pad`.
        """
        if not texts:
            return torch.empty(0, max_length, dtype=torch.int64)
        cut = self._cut(list(texts), max_length=max_length, truncation=True, padding="max_length")
        return torch.tensor(cut["input_ids"], dtype=torch.int64)


def text_tokenizer(name: str, data: Path) -> Tokenizer:
    """The tokenizer of a text backbone, from its folder or the hub.

    Args:
        name: ``hf:FOLDER`` or ``hf:HUB_NAME``, with or without weights.
        data: the folder that a relative folder lies in.

    Raises:
        UserError: there is none, or its padding isn't the network's.
    """
    library = _transformers(name)
    config = _config(name, data)
    with _asked(name, data) as (source, options):
        tokenizer = library.AutoTokenizer.from_pretrained(source, **options)
    pad = tokenizer.pad_token_id
    if pad is None or pad != config.pad_token_id:
        raise UserError(
            f"backbone {name}: its tokenizer pads with {pad}, its config.json says "
            f"{config.pad_token_id}: they must be one token"
        )
    tokenizer.padding_side = "right"
    return Tokenizer(architecture(name), pad, tokenizer)


def text_model(
    name: str, num_classes: int, input_shape: tuple[int, ...], data: Path | None
) -> TextClassifier:
    """A text classifier: the configuration of a folder or hub name, untrained or with weights.

    Weights may be those of a classifier or of its encoder alone: its head, and its pooler, are then
    fresh. Heads for other purposes in the file are left out.

    Args:
        name: ``hf:FOLDER`` or ``hf:HUB_NAME``, and ``@pretrained`` or ``@FILE``.
        num_classes: K.
        input_shape: ``(L,)``.
        data: the folder that relative folders and files lie in.

    Raises:
        UserError: there is no such model, it takes no texts of that length, or its weights can't
            be had or don't fit.
    """
    auto = _transformers(name).AutoModelForSequenceClassification
    config = _config(name, data)
    config.num_labels = num_classes
    if not isinstance(config.pad_token_id, int):
        raise UserError(f"backbone {name}: its config.json names no padding token")
    most = getattr(config, "max_position_embeddings", None)
    # Where positions are relative, some say -1.
    if most is not None and 0 < most < input_shape[0]:
        raise UserError(cannot_take(name, input_shape, f"it takes {most} tokens at most"))
    if not is_pretrained(name):
        return TextClassifier(auto.from_config(config).float(), config.pad_token_id)
    options: dict[str, Any] = {
        "config": config,
        "dtype": torch.float32,
        "ignore_mismatched_sizes": True,
        "output_loading_info": True,
    }
    file = weight_file(name, data)
    with _asked(name, data) as (source, asking):
        if file is None:
            network, report = auto.from_pretrained(source, **options, **asking)
        else:
            untrained = auto.from_config(config)
            state = without_prefixes(read_weights(file, name), set(untrained.state_dict()))
            network, report = type(untrained).from_pretrained(None, state_dict=state, **options)
    classifier = TextClassifier(network, config.pad_token_id)
    if reason := _fresh_head(name, network, report):
        mark_fresh_head(classifier, reason)
    return classifier


def _fresh_head(name: str, network: Any, report: dict[str, Any]) -> str | None:
    """Why the head is fresh, after everything else in the weights has been found to fit."""
    encoder = f"{network.base_model_prefix}."
    other = {key: (theirs, ours) for key, theirs, ours in report["mismatched_keys"]}
    missing, unknown = set(report["missing_keys"]), set(report["unexpected_keys"])
    fresh = sorted(key for key in missing | set(other) if not key.startswith(encoder))
    lacking = sorted(
        key for key in missing if key.startswith(encoder + _POOLER) or not key.startswith(encoder)
    )
    for kind, keys in (
        ("no", sorted(missing - set(lacking))),
        ("a different shape of", sorted(key for key in other if key.startswith(encoder))),
        ("an unknown", sorted(key for key in unknown if key.startswith(encoder))),
    ):
        if keys:
            raise UserError(
                f"backbone {name}: its weights do not fit: {kind} {keys[0]!r} ({len(keys)} such)"
            )
    if not fresh:
        return None
    if shapes := [shapes for key, shapes in other.items() if key in fresh]:
        return f"the weights are for {shapes[0][0][0]} classes, the task has {network.num_labels}"
    return f"the weights have no {fresh[0]}"


def _config(name: str, data: Path | None) -> Any:
    library = _transformers(name)
    with _asked(name, data) as (source, options):
        return library.AutoConfig.from_pretrained(source, **options)


@contextmanager
def _asked(name: str, data: Path | None) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """What to ask Hugging Face's library for, quietly, and its complaints in one line."""
    from transformers.utils import logging

    source, is_folder = _source(name, data)
    options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": is_folder}
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        if is_folder:
            online = True
            yield source, options
        else:
            with quick_hub() as online:
                yield source, options
    except UserError:
        raise
    except Exception as error:
        line = " ".join(str(error).split())
        if is_folder or online:
            raise UserError(f"backbone {name}: {line}") from error
        raise UserError(
            f"backbone {name}: it is no folder of the data folder, not on this machine, and the "
            f"network can't be reached: download the files of https://huggingface.co/{source} "
            f"elsewhere, put their folder into the data folder and name hf:FOLDER@pretrained"
        ) from error
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _source(name: str, data: Path | None) -> tuple[str, bool]:
    """The folder or the hub name, and whether it is a folder."""
    _, model = family(name)
    path = Path(model).expanduser()
    if path.is_absolute():
        if not path.is_dir():
            raise UserError(f"backbone {name}: {path}: no such folder")
        return str(path), True
    if data is not None and (data / path).is_dir():
        return str(data / path), True
    if not _HUB_NAME.fullmatch(model):
        raise UserError(f"backbone {name}: {model!r} is no folder of {data} and no name of the hub")
    return model, False


def _transformers(name: str) -> Any:
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise UserError(
            f"backbone {name}: needs transformers: pip install 'sigma-bench[text]'"
        ) from error
    return transformers
