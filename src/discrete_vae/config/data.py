"""Configs of the data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from discrete_vae.config.base import ComponentConfig, Count, Seed
from discrete_vae.system import unicode_path

BinarizationSeed = Annotated[
    Seed, Field(description="Seed of the one binarization that the validation and test parts keep.")
]
SplitSeed = Annotated[Seed, Field(description="Seed of the shuffle before the parts are split off.")]


class DigitsConfig(ComponentConfig):
    """The 1797 handwritten digits of 8x8 pixels that come with scikit-learn; nothing to download."""

    target = "discrete_vae.data.datasets:load_digits"
    references = ("alpaydin1998",)
    kind: Literal["digits"] = "digits"
    num_valid: Count = Field(default=250, description="Examples held out for validation.")
    num_test: Count = Field(default=250, description="Examples held out for testing.")
    split_seed: SplitSeed = 0
    binarization_seed: BinarizationSeed = 0


class MNISTDynamicConfig(ComponentConfig):
    """MNIST, 28x28, binarized afresh in each training step (Salakhutdinov and Murray, 2008)."""

    target = "discrete_vae.data.datasets:load_mnist_dynamic"
    references = ("lecun1998",)
    kind: Literal["mnist-dynamic"] = "mnist-dynamic"
    num_valid: Count = Field(
        default=10000, description="Images held out for validation, the last of the training images."
    )
    binarization_seed: BinarizationSeed = 0


class MNISTStaticConfig(ComponentConfig):
    """MNIST, 28x28, in the one published binarization (Salakhutdinov and Murray, 2008)."""

    target = "discrete_vae.data.datasets:load_mnist_static"
    references = ("lecun1998", "larochelle2011")
    kind: Literal["mnist-static"] = "mnist-static"


class OmniglotConfig(ComponentConfig):
    """Omniglot, 28x28, in the partition of Burda et al. (2016), binarized afresh in each training step."""

    target = "discrete_vae.data.datasets:load_omniglot"
    references = ("lake2015", "burda2016")
    kind: Literal["omniglot"] = "omniglot"
    num_valid: Count = Field(
        default=1345, description="Images held out for validation, of the shuffled training images."
    )
    split_seed: SplitSeed = 0
    binarization_seed: BinarizationSeed = 0


class Caltech101SilhouettesConfig(ComponentConfig):
    """Caltech-101 Silhouettes, 28x28, official split (Marlin et al., 2010)."""

    target = "discrete_vae.data.datasets:load_caltech101_silhouettes"
    references = ("marlin2010",)
    kind: Literal["caltech101-silhouettes"] = "caltech101-silhouettes"


class FileDataConfig(ComponentConfig):
    """The user's own array, table, sparse matrix or sequences in a file."""

    target = "discrete_vae.data.rows:load_file"
    kind: Literal["file"] = "file"
    path: Path = Field(description="The file; kept as an absolute path.")
    label_column: str | None = Field(
        default=None,
        description="Column of a table or of a .h5ad file's obs that holds labels and is no feature; none means none.",
    )
    label_units: str | None = Field(
        default=None,
        description="Column of a table or of a .h5ad file's obs whose words are classes of the model, each a unit of "
        "the prior; in a .npz or .h5 file the labels, y. A gap is a label that is not known.",
    )
    weight_column: str | None = Field(
        default=None,
        description="Column of a table or of a .h5ad file's obs that holds weights of the examples: how often the "
        "population has each.",
    )
    sequence_weights: float | None = Field(
        default=None,
        gt=0.0,
        le=1.0,
        description="Share of equal places, 0.8 say, from which sequences of a FASTA file are relatives: each weighs "
        "1 / (number of its relatives, itself among them); none weighs all alike.",
    )
    condition: tuple[str, ...] = Field(
        default=(),
        description="Columns c of a table or of a .h5ad file's obs that are no features: the model is one of p(x | c), "
        "with the same codes for all c.",
    )
    ignored_columns: tuple[str, ...] = Field(
        default=(),
        description="Columns of a table, or genes of a .h5ad file, that are not read: names, dates and the like.",
    )
    kinds: str | None = Field(
        default=None,
        description="Kinds of a table's columns: 'auto' infers all, 'age=real,sex=category' or a .toml file names some "
        "and infers the others; none reads a table of numbers as it stands.",
    )
    missing_values: tuple[str, ...] = Field(
        default=(), description="Words or numbers of a table that mean a missing value, such as ? or -999."
    )
    delimiter: str | None = Field(
        default=None, description="What stands between the cells of a table in text; none has it found."
    )
    decimal: str = Field(default=".", description="What stands before decimals in a table in text.")
    thousands: str = Field(default="", description="What groups the digits of a number in a table in text.")
    encoding: str = Field(default="utf-8", description="Encoding of a table in text.")
    layer: str | None = Field(default=None, description="Layer of a .h5ad file that is read; none means X.")
    alphabet: str | None = Field(
        default=None,
        description="Letters of a FASTA file's sequences, or protein, dna or rna; gaps have a code of their own.",
    )
    valid_fraction: float = Field(
        default=0.1,
        gt=0.0,
        lt=1.0,
        description="Share of the examples for validation, where the file has no such part.",
    )
    test_fraction: float = Field(
        default=0.1,
        gt=0.0,
        lt=1.0,
        description="Share of the examples for testing, where the file has no such part.",
    )
    split_seed: SplitSeed = 0
    binarize: bool = Field(
        default=False, description="Take values as probabilities of bits, drawn anew in each step."
    )
    binarization_seed: BinarizationSeed = 0

    @field_validator("kinds")
    @classmethod
    def _absolute_kinds(cls, kinds: str | None) -> str | None:
        if kinds is None or not kinds.endswith(".toml"):
            return kinds
        return str(unicode_path("kinds", kinds).absolute())

    @field_validator("path")
    @classmethod
    def _absolute(cls, path: Path) -> Path:
        # The config of a run is read again later, from any folder.
        found = unicode_path("path", path)
        return found.resolve() if ".." in found.parts else found.absolute()


DataConfig = Annotated[
    DigitsConfig
    | MNISTDynamicConfig
    | MNISTStaticConfig
    | OmniglotConfig
    | Caltech101SilhouettesConfig
    | FileDataConfig,
    Field(discriminator="kind", description="Data set."),
]
