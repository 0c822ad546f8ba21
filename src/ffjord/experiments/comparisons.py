"""The models that the paper compares with, as experiments: `toy/NAME-glow`, `table/NAME-maf` and so on. Free of JAX.

Architectures are those of each model's own paper as far as they are known; the tables' come from that of MAF, which set
the comparison up. What trains them is ours, the same for all: Adam at 1e-3 with averaged weights on batches of 512. The
original settings, 1e-4 on batches of 100 until thirty epochs bring nothing, need days.
"""

from dataclasses import replace

from ffjord.experiments.config import Experiment, ModelConfig, TrainConfig

PAPER = {
    "power": {"real-nvp": -0.17, "glow": -0.17, "made": 3.08, "maf": -0.24, "tan": -0.48, "maf-ddsf": -0.62},
    "gas": {"real-nvp": -8.33, "glow": -8.15, "made": -3.56, "maf": -10.08, "tan": -11.19, "maf-ddsf": -11.96},
    "hepmass": {"real-nvp": 18.71, "glow": 18.92, "made": 20.98, "maf": 17.70, "tan": 15.12, "maf-ddsf": 15.09},
    "miniboone": {"real-nvp": 13.55, "glow": 11.35, "made": 15.59, "maf": 11.75, "tan": 11.01, "maf-ddsf": 8.86},
    "bsds300": {
        "real-nvp": -153.28,
        "glow": -155.07,
        "made": -148.85,
        "maf": -155.69,
        "tan": -157.03,
        "maf-ddsf": -157.73,
    },
}
"""Test negative log-likelihoods of the paper's Table 2, in nats."""

FEW_COLUMNS = 8
"""Tables with no more columns (POWER, GAS) have networks of width 100, the others of width 512."""

_TABLE_TRAIN = TrainConfig(
    steps=100_000,
    batch_size=512,
    learning_rate=1e-3,
    schedule="constant",
    weight_decay=1e-6,
    average=0.999,
    validate_every=500,
    steps_per_call=20,
)


def table_model(kind: str, dim: int) -> ModelConfig:
    """The architecture of a model for a table of `dim` columns."""
    few = dim <= FEW_COLUMNS
    width, flows = (100, 5) if few else (512, 10)
    wide = ModelConfig(hidden=(width, width), nonlinearity="relu", flows=flows)
    return {
        "nice": replace(wide, kind="nice"),
        "real-nvp": replace(wide, kind="real-nvp"),
        "glow": replace(wide, kind="glow"),
        "planar": ModelConfig(kind="planar", flows=32),
        "made": replace(wide, kind="made", flows=1),
        "maf": replace(wide, kind="maf"),
        "iaf": replace(wide, kind="iaf"),
        "tan": ModelConfig(kind="tan", hidden=(128 if few else 256,), nonlinearity="relu", flows=2, components=40),
        "maf-ddsf": replace(wide, kind="maf-ddsf", hidden=(width,) * 2 if few else (256, 256), flows=5, components=16),
    }[kind]


KINDS = ("nice", "real-nvp", "glow", "planar", "made", "maf", "iaf", "tan", "maf-ddsf")


def table_with(experiment: Experiment, kind: str, dim: int) -> Experiment:
    """A table's experiment with another model."""
    name = experiment.data.name
    figure = PAPER.get(name, {}).get(kind)
    return replace(
        experiment,
        name=f"table/{name}-{kind}",
        summary=f"{experiment.summary}, {kind}",
        paper="–" if figure is None else f"{figure:.2f}",
        model=table_model(kind, dim),
        train=_TABLE_TRAIN,
    )


def toy_with_glow(experiment: Experiment) -> Experiment:
    """A toy's experiment with the Glow of Figure 2: a hundred layers."""
    return replace(
        experiment,
        name=f"{experiment.name}-glow",
        summary=f"{experiment.summary}, Glow of 100 layers",
        model=ModelConfig(kind="glow", hidden=(64, 64), nonlinearity="relu", flows=100),
        train=TrainConfig(steps=6000, batch_size=256, learning_rate=1e-3, average=0.999, validate_every=500),
    )
