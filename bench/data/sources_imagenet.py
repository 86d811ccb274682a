"""ImageNet, its corrupted copies and its out-of-distribution sets: where they come from."""

from __future__ import annotations

from bench.data.sources import IMAGENET_TERMS, DataSet, Part


def _imagenet_c(group: str, size: int, md5: str, corruptions: tuple[str, ...]) -> Part:
    return Part(
        url=f"https://zenodo.org/records/2235448/files/{group}.tar",
        file=f"imagenet-c-{group}.tar",
        size=size,
        md5=md5,
        into="imagenet-c",
        gives=tuple(f"imagenet-c/{corruption}" for corruption in corruptions),
    )


IMAGENET = (
    DataSet(
        name="imagenet",
        title="ImageNet (ILSVRC 2012): 1,281,167 training and 50,000 validation photographs",
        place="imagenet",
        licence=f"{IMAGENET_TERMS}, which must be accepted with an account",
        cite="Russakovsky et al., 2015",
        home="https://image-net.org/challenges/LSVRC/2012/2012-downloads.php",
        steps=(
            "get an account at https://image-net.org and accept the terms",
            "put ILSVRC2012_img_train.tar (md5 1d675b47d978889d74fa0da5fadfb00e), "
            "ILSVRC2012_img_val.tar (md5 29b22e2961454d5413ddabcf34fc5622) and "
            "ILSVRC2012_devkit_t12.tar.gz (md5 fa75699e90414af021442c21a62c3abf) into "
            "{data}/imagenet",
            'unpack them into class folders: python -c "from torchvision.datasets import ImageNet '
            "as D; D('{data}/imagenet', 'train'); D('{data}/imagenet', 'val')\"",
        ),
        by_hand=("imagenet/train", "imagenet/val"),
        by_hand_size=147_897_477_120 + 6_744_924_160,
    ),
    DataSet(
        name="imagenet-c",
        title="ImageNet-C: ImageNet's validation part under 19 corruptions of 5 severities",
        place="imagenet-c",
        licence=f"CC BY 4.0; the photographs: {IMAGENET_TERMS}",
        cite="Hendrycks and Dietterich, 2019",
        home="https://zenodo.org/records/2235448",
        parts=(
            _imagenet_c(
                "noise",
                22_565_673_785,
                "e80562d7f6c3f8834afb1ecf27252745",
                ("gaussian_noise", "shot_noise", "impulse_noise"),
            ),
            _imagenet_c(
                "blur",
                7_112_704_951,
                "2d8e81fdd8e07fef67b9334fa635e45c",
                ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
            ),
            _imagenet_c(
                "weather",
                12_797_438_995,
                "33ffea4db4d93fe4a428c40a6ce0c25d",
                ("snow", "frost", "fog", "brightness"),
            ),
            _imagenet_c(
                "digital",
                7_757_510_705,
                "89157860d7b10d5797849337ca2e5c03",
                ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
            ),
            _imagenet_c(
                "extra",
                15_789_490_144,
                "d492dfba5fc162d8ec2c3cd8ee672984",
                ("speckle_noise", "spatter", "gaussian_blur", "saturate"),
            ),
        ),
    ),
    DataSet(
        name="imagenet-o",
        title="ImageNet-O: 2,000 photographs of classes that ImageNet-1k lacks",
        place="imagenet-o",
        licence=IMAGENET_TERMS,
        cite="Hendrycks et al., 2021",
        home="https://github.com/hendrycks/natural-adv-examples",
        parts=(
            Part(
                url="https://people.eecs.berkeley.edu/~hendrycks/imagenet-o.tar",
                file="imagenet-o.tar",
                size=None,
                md5="86bd7a50c1c4074fb18fc5f219d6d50b",
                gives=("imagenet-o",),
            ),
        ),
    ),
    DataSet(
        name="openimage-o",
        title="OpenImage-O: 17,632 photographs of none of ImageNet's classes",
        place="openimage-o",
        licence="the photographs are listed as CC BY 2.0",
        cite="Wang et al., 2022",
        home="https://github.com/haoqiwang/vim",
        parts=(
            Part(
                url="https://zenodo.org/records/10540831/files/OpenImage-O.zip",
                file="OpenImage-O.zip",
                size=None,
                md5="c0abd7cd4b6f218a7149adc718d70e6e",
                into="openimage-o/ood",
                gives=("openimage-o/ood",),
                proof=("openimage-o",),
            ),
        ),
    ),
    DataSet(
        name="inaturalist",
        title="iNaturalist, 10,000 photographs of plants that ImageNet lacks",
        place="iNaturalist",
        licence="non-commercial research and education; photographs keep their authors' terms",
        cite="Van Horn et al., 2018; Huang and Li, 2021",
        home="https://github.com/deeplearning-wisc/large_scale_ood",
        parts=(
            Part(
                url="http://pages.cs.wisc.edu/~huangrui/imagenet_ood_dataset/iNaturalist.tar.gz",
                file="iNaturalist.tar.gz",
                size=None,
                md5="5be6ea8aa027d7b631916427b32cb335",
                gives=("iNaturalist",),
            ),
        ),
    ),
)
"""For the task `imagenet`; Textures is `dtd`."""
