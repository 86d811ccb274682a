"""Networks that keep samples on another axis than the first, where sizes agree by chance."""

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    DebertaV2Config,
    XLNetConfig,
)

from bench.backbones.hugging_face import TextClassifier
from bench.data.task import Split, Task
from bench.errors import NotApplicable
from bench.planning import check_batches, inference_flops
from bench.registry import method_class

MEMBERS, TOKENS, WORDS = 4, 16, 40
REST = {"vocab_size": WORDS, "pad_token_id": 0, "num_labels": 2}
SIZE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
CONFIGS = {
    "xlnet": XLNetConfig(d_model=16, n_layer=1, n_head=2, d_inner=16, **REST),
    "deberta": DebertaV2Config(
        **SIZE,
        **REST,
        intermediate_size=16,
        max_position_embeddings=32,
        relative_attention=True,
        position_buckets=8,
        norm_rel_ebd="layer_norm",
        pos_att_type=["p2c", "c2p"],
    ),
    "bert": BertConfig(**SIZE, **REST, intermediate_size=16, max_position_embeddings=32),
}


def network(kind):
    torch.manual_seed(0)
    return TextClassifier(AutoModelForSequenceClassification.from_config(CONFIGS[kind]), pad=0)


def texts(lengths):
    ids = torch.zeros(len(lengths), TOKENS, dtype=torch.int64)
    for row, length in enumerate(lengths):
        ids[row, :length] = 1 + torch.arange(length)
    return Split(ids, torch.arange(len(lengths)) % 2)


def task(train=(TOKENS,) * 20, test=(TOKENS,) * 4):
    return Task(
        name="texts",
        class_names=("a", "b"),
        train=texts(train),
        validation=texts(test),
        test=texts(test),
        mean=(),
        std=(),
        shifts=(),
        shift_origin="generated",
        outliers=(),
        load_shift=lambda _: texts(test),
        load_outlier=lambda _: texts(test),
    )


def test_members_of_a_network_with_tokens_first_would_mix():
    """What the check is for: 4 samples of 4 members are as many rows as the 16 tokens."""
    model = method_class("sigma_nens")(members=MEMBERS).build(network("xlnet"), 2).eval()
    ids = torch.randint(1, WORDS, (4, TOKENS))
    with torch.no_grad():
        whole = model(ids)
        apart = torch.cat([model(ids, members=slice(m, m + 1)) for m in range(MEMBERS)], dim=1)
    assert (whole - apart).abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["xlnet", "deberta"])
@pytest.mark.parametrize("name", ["sigma_nens", "film_ensemble", "batch_ensemble"])
def test_such_a_network_is_refused_before_training(kind, name):
    model = method_class(name)(members=MEMBERS).build(network(kind), 2)
    with pytest.raises(NotApplicable, match=r"batch of|the batch must stay on dimension 0"):
        check_batches(model, task())


@pytest.mark.parametrize("name", ["sigma_nens", "film_ensemble", "batch_ensemble", "single"])
def test_others_pass_and_are_left_as_they_are(name):
    method = method_class(name)
    parameters = {} if name == "single" else {"members": MEMBERS}
    model = method(**parameters).build(network("bert"), 2).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    check_batches(model, task())
    assert model.training
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_inference_is_counted_on_a_text_of_mean_length():
    """Not on the first one of the test split, which may be of any length."""
    plain = method_class("single")().build(network("bert"), 2)
    same = inference_flops(plain, task(test=(6, 6, 6)))
    assert inference_flops(plain, task(test=(3, 5, 10))) == same
    assert inference_flops(plain, task(test=(10, 5, 3))) == same
    assert inference_flops(plain, task(test=(3, 3, 3))) < same


def test_a_planned_batch_is_from_all_over_the_training_set():
    """Files are often sorted; the cost of the shortest texts is not that of a step."""
    from bench.planning import _one_batch

    rows = task(train=(*(2,) * 10, *(12,) * 10))
    inputs, target = _one_batch(rows, 4)
    assert inputs.shape == (4, 12)
    assert target.shape == (4,)
    assert _one_batch(rows, 50)[0].shape == (50, 12)


def test_plugins_that_support_no_such_backbone_convert_none():
    class Picky(method_class("single")):
        name = "picky"

        def supports(self, backbone):
            return "not this one"

        def convert(self, backbone, num_classes):
            return super(method_class("single"), self).convert(backbone, num_classes)

    with pytest.raises(NotApplicable, match="not this one"):
        Picky().convert(network("bert"), 2)
