"""CIFAR, its corrupted copies and the small out-of-distribution sets: where they come from."""

from __future__ import annotations

from bench.data.sources import IMAGENET_TERMS, DataSet, Part

_CORRUPTED = (
    *("brightness", "contrast", "defocus_blur", "elastic_transform", "fog", "frost"),
    *("gaussian_blur", "gaussian_noise", "glass_blur", "impulse_noise", "jpeg_compression"),
    *("motion_blur", "pixelate", "saturate", "shot_noise", "snow", "spatter", "speckle_noise"),
    "zoom_blur",
)


def _cifar(number: int, size: int, md5: str, folder: str, files: tuple[str, ...]) -> DataSet:
    name = f"cifar-{number}-python.tar.gz"
    return DataSet(
        name=f"cifar{number}",
        title=f"CIFAR-{number}: 60,000 photographs of {number} classes, 32×32",
        place=folder,
        licence="none stated",
        cite="Krizhevsky, 2009",
        home="https://www.cs.toronto.edu/~kriz/cifar.html",
        parts=(
            Part(
                url=f"https://www.cs.toronto.edu/~kriz/{name}",
                file=name,
                size=size,
                md5=md5,
                gives=(folder,),
                proof=tuple(f"{folder}/{file}" for file in files),
            ),
        ),
    )


def _cifar_c(number: int, record: int, size: int, md5: str, sha256: str) -> DataSet:
    folder = f"CIFAR-{number}-C"
    return DataSet(
        name=f"cifar{number}-c",
        title=f"CIFAR-{number}-C: the test images under 19 corruptions of 5 severities",
        place=folder,
        licence="CC BY 4.0",
        cite="Hendrycks and Dietterich, 2019",
        home=f"https://zenodo.org/records/{record}",
        parts=(
            Part(
                url=f"https://zenodo.org/records/{record}/files/{folder}.tar",
                file=f"{folder}.tar",
                size=size,
                md5=md5,
                sha256=sha256,
                gives=(folder,),
                proof=tuple(f"{folder}/{file}.npy" for file in (*_CORRUPTED, "labels")),
            ),
        ),
    )


def _mnist(file: str, size: int, md5: str, sha256: str) -> Part:
    url = f"https://ossci-datasets.s3.amazonaws.com/mnist/{file}"
    return Part(url, f"MNIST/raw/{file}", size, md5, sha256)


_PLACES = "http://data.csail.mit.edu/places/places365"

CIFAR = (
    _cifar(
        10,
        170_498_071,
        "c58f30108f718f92721af3b95e74349a",
        "cifar-10-batches-py",
        (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"),
    ),
    _cifar(
        100,
        169_001_437,
        "eb9058c3a382ffc7106e4002c42a8d85",
        "cifar-100-python",
        ("train", "test", "meta"),
    ),
    _cifar_c(
        10,
        2535967,
        2_918_471_680,
        "56bf5dcef84df0e2308c6dcbcbbd8499",
        "c72763e101c723b7c507b96205f7e938912a5d587376173b825850cf3cb876a7",
    ),
    _cifar_c(
        100,
        3555552,
        2_918_473_216,
        "11f0ed0f1191edbf9fa23466ae6021d3",
        "30ee6543a1bfd049fa33834b7c1ada301e7064b7fbe8fc38340eb8b62ced4b33",
    ),
    DataSet(
        name="svhn",
        title="SVHN, test part: 26,032 house numbers, 32×32",
        place="test_32x32.mat",
        licence="non-commercial use",
        cite="Netzer et al., 2011",
        home="http://ufldl.stanford.edu/housenumbers/",
        parts=(
            Part(
                url="http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
                file="test_32x32.mat",
                size=64_275_384,
                md5="eb5a983be6a315427106f1b164d9cef3",
                sha256="cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            ),
        ),
    ),
    DataSet(
        name="dtd",
        title="DTD, the Describable Textures: 5,640 photographs of 47 textures",
        place="dtd/dtd",
        licence="research use",
        cite="Cimpoi et al., 2014",
        home="https://www.robots.ox.ac.uk/~vgg/data/dtd/",
        parts=(
            Part(
                url="https://www.robots.ox.ac.uk/~vgg/data/dtd/download/dtd-r1.0.1.tar.gz",
                file="dtd-r1.0.1.tar.gz",
                size=625_239_812,
                md5="fff73e5086ae6bdbea199a49dfb8a4c1",
                sha256="e42855a52a4950a3b59612834602aa253914755c95b0cff9ead6d07395f8e205",
                into="dtd",
                gives=("dtd/dtd",),
                proof=("dtd/dtd/images", "dtd/dtd/labels/test1.txt"),
            ),
        ),
    ),
    DataSet(
        name="mnist",
        title="MNIST, test part: 10,000 handwritten digits, 28×28, grey",
        place="MNIST/raw",
        licence="CC BY-SA 3.0, as Keras and others state it",
        cite="LeCun et al., 1998",
        home="http://yann.lecun.com/exdb/mnist/",
        parts=(
            _mnist(
                "t10k-images-idx3-ubyte.gz",
                1_648_877,
                "9fb629c4189551a2d022fa330f9573f3",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            _mnist(
                "t10k-labels-idx1-ubyte.gz",
                4_542,
                "ec29112dd5afa0611ce80d1b7f02629c",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
    ),
    DataSet(
        name="tiny-imagenet",
        title="Tiny ImageNet: 120,000 photographs of 200 classes, 64×64; 10,000 for validation",
        place="tiny-imagenet-200",
        licence=IMAGENET_TERMS,
        cite="Le and Yang, 2015",
        home="http://cs231n.stanford.edu/",
        parts=(
            Part(
                url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                file="tiny-imagenet-200.zip",
                size=248_100_043,
                md5="90528d7ca1a48142e341f4ef8d21d0de",
                gives=("tiny-imagenet-200",),
                proof=(
                    "tiny-imagenet-200/val/images",
                    "tiny-imagenet-200/val/val_annotations.txt",
                ),
            ),
        ),
    ),
    DataSet(
        name="places365",
        title="Places365, validation part: 36,500 scenes, 256×256",
        place="places365",
        licence="non-commercial research and education",
        cite="Zhou et al., 2017",
        home="http://places2.csail.mit.edu/download.html",
        parts=(
            Part(
                url=f"{_PLACES}/val_256.tar",
                file="places365/val_256.tar",
                size=525_158_400,
                md5="e27b17d8d44f4af9a78502beb927f808",
                sha256="24b4e639ef12a0012af525bc4cb443e4ab4aaea8369a1fb009b70e4a4aad5d48",
                into="places365",
                gives=("places365/val_256",),
            ),
            Part(
                url=f"{_PLACES}/filelist_places365-standard.tar",
                file="places365/filelist_places365-standard.tar",
                size=67_498_496,
                md5="35a0585fee1fa656440f3ab298f8479c",
                sha256="520699e00d69b63ddc29fac54645aa00ce1c10ca42e288960aa1cf791d6e9aa9",
                into="places365",
                gives=("places365/places365_val.txt", "places365/categories_places365.txt"),
            ),
        ),
    ),
)
"""For the tasks `cifar10` and `cifar100`."""
