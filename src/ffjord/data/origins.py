"""Where the sets are published: addresses, checksums, and which files of an archive are wanted."""

from dataclasses import dataclass

_UCI = "https://archive.ics.uci.edu"


@dataclass(frozen=True)
class Take:
    """Files of an archive."""

    pattern: str
    """Of the name in the archive, after any folders."""
    folder: str
    """Where the file goes, within the data directory."""
    count: int = 1


@dataclass(frozen=True)
class Origin:
    """A file to download, and what to take out of it."""

    url: str
    file: str
    """Where it is kept, within the data directory."""
    checksum: str | None = None
    """As "md5:…"; None if the publisher states none."""
    take: tuple[Take, ...] = ()
    """Nothing, of a file that is read as it is."""


def _maf(*take: Take) -> tuple[Origin, ...]:
    url = "https://zenodo.org/records/1161203/files/data.tar.gz"
    return (Origin(url, "maf-data.tar.gz", "md5:9b9c9b0375315ad270eba4ce80c093ab", take),)


MAF: dict[str, tuple[Origin, ...]] = {
    "power": _maf(Take("power/data.npy", "power")),
    "gas": _maf(Take("gas/ethylene_CO.pickle", "gas")),
    "hepmass": _maf(Take("hepmass/1000_train.csv", "hepmass"), Take("hepmass/1000_test.csv", "hepmass")),
    "miniboone": _maf(Take("miniboone/data.npy", "miniboone")),
    "bsds300": _maf(Take("BSDS300/BSDS300.hdf5", "bsds300")),
}
"""What MAF prepared, all sets in one archive of 0.8 GB."""

PUBLISHER: dict[str, tuple[Origin, ...]] = {
    "power": (
        Origin(
            f"{_UCI}/static/public/235/individual+household+electric+power+consumption.zip",
            "power/household_power_consumption.zip",
        ),
    ),
    "gas": (
        Origin(
            f"{_UCI}/static/public/322/gas+sensor+array+under+dynamic+gas+mixtures.zip",
            "gas/gas_mixtures.zip",
            take=(Take("ethylene_CO.txt", "gas"),),
        ),
    ),
    "hepmass": tuple(
        Origin(f"{_UCI}/ml/machine-learning-databases/00347/{name}", f"hepmass/{name}")
        for name in ("1000_train.csv.gz", "1000_test.csv.gz")
    ),
    "miniboone": (
        Origin(
            f"{_UCI}/static/public/199/miniboone+particle+identification.zip",
            "miniboone/miniboone.zip",
            take=(Take("MiniBooNE_PID.txt", "miniboone"),),
        ),
    ),
    "bsds300": (
        Origin(
            "https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/bsds/BSDS300-images.tgz",
            "bsds300/BSDS300-images.tgz",
            take=(
                Take("images/train/*.jpg", "bsds300/images/train", 200),
                Take("images/test/*.jpg", "bsds300/images/test", 100),
            ),
        ),
    ),
}
"""The UCI repository's and Berkeley's files. No checksums are stated for them."""

_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
_BINARIZED = "https://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist"

IMAGES: dict[str, tuple[Origin, ...]] = {
    "mnist": tuple(
        Origin(f"{_MNIST}/{name}", f"mnist/{name}", f"md5:{checksum}")
        for name, checksum in (
            ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
        )
    ),
    "cifar10": (
        Origin(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "cifar10/cifar-10-binary.tar.gz",
            "md5:c32a1d4ab5d03f1284b67883e8d87530",
        ),
    ),
    "binary-mnist": tuple(
        Origin(f"{_BINARIZED}/{name}", f"binarized_mnist/{name}", f"sha256:{checksum}")
        for name, checksum in (
            ("binarized_mnist_train.amat", "ad693b29f94c14277b095f5238ddefbbdaaae0939789dd2f4f0205278cee3e4d"),
            ("binarized_mnist_valid.amat", "1de3d397c40fe8eeb33dafd4099a1f665ec01e96d9be234aaeeac8a34930e2e2"),
            ("binarized_mnist_test.amat", "e6687bfea3f820c174f33b7865140b2a2dd2930ef786f35d45795fc193b5ab2c"),
        )
    ),
    "omniglot": (
        Origin(
            "https://raw.githubusercontent.com/yburda/iwae/master/datasets/OMNIGLOT/chardata.mat",
            "omniglot/chardata.mat",
            "md5:21ecaf34373511aa7691cf2e0802aa3d",
        ),
    ),
    "frey": (
        Origin(
            "https://cs.nyu.edu/~roweis/data/frey_rawface.mat",
            "freyfaces/frey_rawface.mat",
            "md5:5aeb024d42b8a6091f30e5eb18c8a48d",
        ),
    ),
    "caltech": (
        Origin(
            "https://people.cs.umass.edu/~marlin/data/caltech101_silhouettes_28_split1.mat",
            "caltech101_silhouettes/caltech101_silhouettes_28_split1.mat",
            "md5:4483e9c14b188fd09937f9ea6f9ea777",
        ),
    ),
}
"""The publishers' files of pictures, which are read as they are."""
