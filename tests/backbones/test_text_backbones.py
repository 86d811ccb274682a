"""Text classifiers of Hugging Face, from a folder that is made here."""

import json
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from bench.backbones import create_backbone, fresh_head, text_tokenizer
from bench.errors import UserError
from bench.flops import count_flops

WORDS = [f"word{i}" for i in range(35)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A data folder with three small models: an encoder, a classifier, a language model."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("data")
    config = transformers.BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=24,
        max_position_embeddings=20,
        num_labels=3,
    )
    torch.manual_seed(0)
    models = {
        "encoder": transformers.BertModel(config, add_pooling_layer=False),
        "classifier": transformers.BertForSequenceClassification(config),
        "language": transformers.BertForMaskedLM(config),
    }
    for name, model in models.items():
        model.save_pretrained(folder / name)
        (folder / name / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
        (folder / name / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True})
        )
    return folder


def test_tokens_are_cut_and_filled_up(data):
    tokenizer = text_tokenizer("hf:encoder@pretrained", data)
    ids = tokenizer.encode(["word0 word1", "word2 Word3 word4 word5", "", "strange"], 5)
    assert ids.dtype == torch.int64
    assert ids.tolist() == [
        [2, 5, 6, 3, 0],
        [2, 7, 8, 9, 3],  # cut, and still closed
        [2, 3, 0, 0, 0],
        [2, 1, 3, 0, 0],
    ]
    assert (tokenizer.pad, tokenizer.name) == (0, "hf:encoder")
    assert tokenizer.encode([], 5).shape == (0, 5)


def test_an_image_backbone_has_no_tokenizer(tmp_path):
    with pytest.raises(UserError, match="takes images, not texts"):
        text_tokenizer("resnet8", tmp_path)


def test_a_tokenizer_that_pads_otherwise_is_refused(data, tmp_path):
    folder = tmp_path / "odd"
    folder.mkdir()
    for file in (data / "encoder").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "pad_token_id": 4}))
    with pytest.raises(UserError, match="pads with 0"):
        text_tokenizer("hf:odd", tmp_path)


@pytest.mark.parametrize(
    ("name", "classes", "reason"),
    [
        ("encoder@pretrained", 3, "no classifier"),
        ("classifier@pretrained", 3, None),
        ("classifier@pretrained", 4, "for 3 classes, the task has 4"),
        ("language@pretrained", 3, "no classifier"),
        ("encoder@encoder/model.safetensors", 3, "no classifier"),
        ("classifier@classifier/model.safetensors", 3, None),
        ("classifier@classifier/model.safetensors", 4, "for 3 classes, the task has 4"),
    ],
)
def test_the_encoder_is_loaded_and_the_head_where_it_is_there(data, name, classes, reason):
    network = create_backbone(f"hf:{name}", classes, (8,), data)
    assert network.training
    encoder = name.partition("@")[0]
    stored = load_file(data / encoder / "model.safetensors")
    found = network.network.state_dict()
    layer = "encoder.layer.1.attention.self.query.weight"
    wanted = stored.get(f"bert.{layer}", stored.get(layer))
    assert torch.equal(found[f"bert.{layer}"], wanted)
    if reason is None:
        assert fresh_head(network) is None
        assert torch.equal(found["classifier.weight"], stored["classifier.weight"])
    else:
        assert reason in fresh_head(network)
        assert found["classifier.weight"].shape == (classes, 16)


def test_a_fresh_head_and_untrained_weights_follow_the_global_seed(data):
    def weights(name, seed):
        torch.manual_seed(seed)
        network = create_backbone(name, 3, (8,), data).network
        return torch.cat([network.classifier.weight.flatten(), *network.bert.parameters()][:1])

    for name in ("hf:encoder@pretrained", "hf:encoder"):
        assert torch.equal(weights(name, 1), weights(name, 1))
        assert not torch.equal(weights(name, 1), weights(name, 2))


def test_padding_changes_nothing(data):
    network = create_backbone("hf:encoder@pretrained", 3, (8,), data).eval()
    ids = text_tokenizer("hf:encoder", data).encode(["word3 word9", "word1"], 8)
    logits = network(ids)
    assert logits.shape == (2, 3)
    torch.testing.assert_close(network(ids[:, :4]), logits, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(network(ids[1:, :3]), logits[1:], rtol=1e-5, atol=1e-6)


def test_flops_are_counted(data):
    network = create_backbone("hf:encoder", 3, (8,), data)
    ids = torch.tensor([[2, 5, 3, 0]])
    tokens, width, inner = 4, 16, 24
    linear = tokens * (4 * width * width + 2 * width * inner)
    attention = 2 * tokens * tokens * width
    head = width * width + 3 * width  # the pooler too
    wanted = 2 * (2 * (linear + attention) + head)
    assert count_flops(network, ids, lambda ghost, batch: ghost(batch)) == wanted


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.pop("bert.encoder.layer.1.output.dense.bias"), "no 'bert.encoder.layer.1"),
        (lambda s: s.update({"bert.other.weight": torch.ones(2)}), "an unknown 'bert.other"),
        (
            lambda s: s.update({"bert.encoder.layer.0.output.dense.bias": torch.ones(9)}),
            "different shape of 'bert.encoder.layer.0",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(data, tmp_path, change, words):
    state = load_file(data / "classifier" / "model.safetensors")
    change(state)
    save_file(state, tmp_path / "w.safetensors")
    with pytest.raises(UserError, match=words) as caught:
        create_backbone(f"hf:classifier@{tmp_path / 'w.safetensors'}", 3, (8,), data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "length", "words"),
    [
        ("hf:encoder", 21, "20 tokens at most"),
        ("hf:/no/such/folder", 8, "no such folder"),
        ("hf:a/b/c", 8, "no folder of"),
        ("hf:empty@pretrained", 8, "empty"),
    ],
)
def test_models_that_cannot_be_had(data, name, length, words):
    (data / "empty").mkdir(exist_ok=True)
    with pytest.raises(UserError, match=words) as caught:
        create_backbone(name, 3, (length,), data)
    assert "\n" not in str(caught.value)


def test_without_the_library_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "transformers", None)
    for ask in (
        lambda: create_backbone("hf:encoder", 3, (8,), tmp_path),
        lambda: text_tokenizer("hf:encoder", tmp_path),
    ):
        with pytest.raises(UserError, match=r"pip install 'sigma-bench\[text\]'"):
            ask()


def saved(folder, config):
    config.save_pretrained(folder)
    return f"hf:{folder.name}"


def test_a_network_whose_answer_depends_on_padding_is_refused(tmp_path):
    """XLNet reads the last token, and wants texts filled up at their start."""
    transformers = pytest.importorskip("transformers")
    config = transformers.XLNetConfig(
        vocab_size=40, d_model=16, n_layer=1, n_head=2, d_inner=16, pad_token_id=0
    )
    with pytest.raises(UserError, match="depends on the padding at the end"):
        create_backbone(saved(tmp_path / "xlnet", config), 2, (8,), tmp_path)


def test_flops_of_a_network_that_looks_for_padding_itself(tmp_path):
    """DeBERTa reads its token ids where there is no mask; for counting there are no values."""
    transformers = pytest.importorskip("transformers")
    config = transformers.DebertaV2Config(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=20,
        type_vocab_size=0,
    )
    network = create_backbone(saved(tmp_path / "deberta", config), 3, (8,), tmp_path).eval()
    found = count_flops(network, torch.ones(2, 8, dtype=torch.int64), lambda model, ids: model(ids))
    dense = 4 * 16 * 16 + 2 * 16 * 24
    attention = 2 * 8 * 16
    assert found == 2 * (2 * 8 * (dense + attention) + 2 * (16 * 16 + 16 * 3))


def test_a_network_that_looks_at_values_is_refused_in_one_line(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.MegatronBertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=20,
        pad_token_id=0,
    )
    with pytest.raises(UserError, match="its cost can't be counted") as caught:
        create_backbone(saved(tmp_path / "megatron", config), 3, (8,), tmp_path)
    assert "\n" not in str(caught.value)
