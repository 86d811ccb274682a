"""Names with weights: which are refused, before anything heavy is imported."""

import subprocess
import sys

import pytest

from bench.backbones import architecture, check_backbone_name, create_backbone, is_pretrained
from bench.errors import UserError


@pytest.mark.parametrize(
    ("name", "plain", "pretrained"),
    [
        ("resnet8", "resnet8", False),
        ("he_resnet56@cifar10_resnet56.safetensors", "he_resnet56", True),
        ("timm:vit_base_patch16_224.augreg_in1k@pretrained", None, True),
        ("torchvision:resnet50@/some/where/w.pth", "torchvision:resnet50", True),
        ("hf:folder/of/mine@pretrained", "hf:folder/of/mine", True),
        ("resnet18@odd@name.pt", "resnet18", True),
    ],
)
def test_good_names(name, plain, pretrained):
    check_backbone_name(name)
    assert architecture(name) == (plain or name.removesuffix("@pretrained"))
    assert is_pretrained(name) == pretrained


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("resnet18@pretrained", "no weights come with it: write resnet18@FILE"),
        ("vit_tiny@", "which weights"),
        ("resnet18@weights.pkl", ".safetensors"),
        ("resnet18@pretraind", "'pretrained'"),
        ("resnet19@w.pt", "resnet18"),
        ("hf:", "hf:bert-base-uncased"),
        ("torchvision:@pretrained", "torchvision:resnet50"),
        ("torchvision:resnet51", "torchvision:resnet50"),
        ("torchvision:fasterrcnn_resnet50_fpn", "no such model"),
        ("torchvision:inception_v3", "timm:inception_v3"),
        ("timm:levit_128s", "timm:levit_conv_128s"),
    ],
)
def test_bad_names_say_what_is_right(name, words):
    import torchvision  # noqa: F401  (its names are looked up once it is there)

    with pytest.raises(UserError) as caught:
        check_backbone_name(name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_with_weights_are_checked_without_heavy_imports():
    code = (
        "import sys; from bench.backbones import check_backbone_name as check;"
        "[check(f'{n}:x@pretrained') for n in ('timm', 'torchvision', 'hf')];"
        "check('resnet18@a.safetensors');"
        "heavy = {'torch', 'timm', 'torchvision', 'transformers', 'safetensors'};"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("resnet8", (12,), "takes images, not texts"),
        ("hf:somewhere", (3, 8, 8), "takes texts, not images"),
        ("torchvision:resnet18", (1, 32, 32), "3 channels"),
        ("torchvision:vit_b_16", (3, 32, 64), "square"),
        ("resnet8@w.pt", (3, 8, 8), "data folder"),
    ],
)
def test_inputs_that_a_backbone_cannot_take(name, shape, words):
    with pytest.raises(UserError, match=words) as caught:
        create_backbone(name, 5, shape)
    assert "\n" not in str(caught.value)
