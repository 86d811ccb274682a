"""What goes into an ensemble and what its network may give back."""

from collections import OrderedDict, UserDict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sigma_nens import SigmaEnsemble

M = 4


class TextModel(nn.Module):
    """The shape of a Hugging Face classifier: keyword arguments in, an object with logits out."""

    def __init__(self, output: str = "object") -> None:
        super().__init__()
        self.output = output
        self.embedding = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.classifier = nn.Linear(8, 3)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, scale: Any = 1.0, return_dict: bool = True
    ) -> Any:
        assert return_dict is True
        hidden = self.norm(self.embedding(input_ids) * scale)
        weights = attention_mask.unsqueeze(-1)
        logits = self.classifier((hidden * weights).sum(1) / weights.sum(1))
        if self.output == "object":
            return SimpleNamespace(logits=logits)
        return OrderedDict(loss=None, logits=logits) if self.output == "mapping" else logits


@pytest.mark.parametrize("output", ["object", "mapping", "tensor"])
@pytest.mark.parametrize("container", ["dict", "userdict", "tuple", "list"])
def test_containers_of_tensors(output: str, container: str) -> None:
    ensemble = SigmaEnsemble(TextModel(output), 3).eval()
    ids, mask = torch.randint(0, 11, (2, 5)), torch.ones(2, 5)
    mask[1, 3:] = 0
    scale = torch.tensor(2.0)
    named = {"input_ids": ids, "attention_mask": mask, "scale": scale, "return_dict": True}
    values = (ids, mask, scale, True)
    inputs = {
        "dict": named,
        "userdict": UserDict(named),
        "tuple": values,
        "list": list(values),
    }[container]
    logits = ensemble(inputs)
    assert logits.shape == (2, 3, 3)
    for t in range(3):
        out = ensemble.member(t)(*values)
        out = out["logits"] if output == "mapping" else getattr(out, "logits", out)
        torch.testing.assert_close(logits[:, t], out)


class Returns(nn.Module):
    def __init__(self, what: Any) -> None:
        super().__init__()
        self.norm, self.fc, self.what = nn.BatchNorm1d(4), nn.Linear(4, 3), what

    def forward(self, x: Tensor) -> Any:
        return self.what(self.fc(self.norm(x)))


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        (lambda y: (y, y), TypeError, "must return a tensor of logits.*got tuple"),
        (lambda y: y[:, None], ValueError, r"must return logits \[N, K\]"),
        (lambda y: y[1:], ValueError, "gave 15 rows of logits for 4 samples × 4 members"),
        (lambda y: torch.cat([y, y], 1), ValueError, "gave 6 logits, but 'fc'.* has 3 outputs"),
    ],
)
def test_outputs_that_are_no_logits_are_refused(
    what: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        SigmaEnsemble(Returns(what), M)(torch.randn(4, 4))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            {"x": torch.zeros(2, 4), "mask": torch.zeros(3, 4)},
            r"input\['x'\]: 2, input\['mask'\]: 3",
        ),
        ((torch.zeros(2, 4), [torch.zeros(1)]), r"input\[0\]: 2, input\[1\]\[0\]: 1"),
        (torch.tensor(1.0), "holds no tensor with a batch"),
        ("text", "holds no tensor with a batch: got str"),
        (torch.zeros(0, 4), "the batch is empty"),
    ],
)
def test_inputs_without_one_batch_are_refused(inputs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SigmaEnsemble(Returns(lambda y: y), M)(inputs)


def test_a_layer_that_moves_the_batch_is_refused_by_name() -> None:
    class Moved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.ModuleDict({"norm": nn.LayerNorm(4)})
            self.fc = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.inner["norm"](x.transpose(0, 1)).mean(0))

    with pytest.raises(ValueError, match=r"inner.norm \(LayerNorm\): the first dimension"):
        SigmaEnsemble(Moved(), M)(torch.randn(2, 5, 4))
