"""Studies that `ffjord reproduce` makes again from nothing: figures and numbers by one command. Free of JAX.

A study is a line of `STUDIES`, and a module `ffjord.cli.studies.NAME` whose `main(argv)` takes at least `--quick` and
`--out`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Study:
    """What there is to tell of a study before it is made."""

    about: str
    place: str
    """Where it is in the paper."""
    quick: str
    """Minutes of the sketch on one core; with ~ where they are not measured."""
    full: str
    """Minutes of the whole."""
    data: str = ""
    """What it needs, or can use, that does not come with the package."""
    in_all: tuple[str, ...] = ()
    """Words that `ffjord reproduce all --quick` adds, to make it short enough."""


STUDIES = {
    "figure1": Study("the flow on a line: density over time, paths", "Figure 1", "0.5", "1.5"),
    "figure2": Study("Glow and FFJORD on the eight toys, side by side", "Figure 2", "5.4", "~90"),
    "table1": Study("what each model can do, shown by trying it", "Table 1", "1.6", "~2"),
    "table2": Study(
        "every model on a table for the same time",
        "Table 2",
        "9.4",
        "--minutes a model",
        "the paper's tables, optional",
    ),
    "table3": Study(
        "variational autoencoders with every posterior",
        "Table 3",
        "10.8",
        "hours each, or --minutes of each",
        "MNIST, Omniglot, Frey, Caltech, optional",
    ),
    "bottleneck": Study(
        "training with and without the bottleneck trick", "section 5.1, Figure 4", "3.5", "~30", "MNIST, optional"
    ),
    "nfe-vs-dimension": Study("evaluations against the data's dimension", "section 5.2, Figure 5", "7", "~50"),
    "multiscale": Study("evaluations and loss, multi-scale and single-scale", "section 5.3, Figure 6", "4.2", "~50"),
    "fewer-evaluations": Study(
        "regularisation against evaluations (weight decay, spectral normalisation), and what else reduces them",
        "section 6",
        "~5",
        "~90",
        in_all=("--data", "8gaussians", "--recipes", "paper", "loose", "weight decay", "spectral norm"),
    ),
    "tolerance": Study("does the density integrate to one? Error by tolerance", "appendix C, Figure 8", "0.3", "~5"),
    "noise-variance": Study("what the trace's noise does to a log-likelihood", "section 4", "2.8", "~30"),
    "adjoint-memory": Study("memory and time of three gradients", "sections 2.2.1, 6", "~6", "~30"),
    "samples": Study(
        "samples of image models beside data", "Figures 3, 7", "0.2", "~30", "of the runs given, optional"
    ),
}
"""By name, in the order of the paper."""
