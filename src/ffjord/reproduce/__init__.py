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
    """Time of the sketch on two cores: measured, where nothing else is said."""
    full: str
    """Time of the whole."""
    data: str = "none to get"
    """What it needs that does not come with the package."""
    in_all: tuple[str, ...] = ()
    """Words that `ffjord reproduce all --quick` adds, to make it short enough."""


STUDIES = {
    "figure1": Study("the flow on a line: density over time, paths", "Figure 1", "?", "?"),
    "figure2": Study("Glow and FFJORD on the eight toys, side by side", "Figure 2", "?", "an hour or two"),
    "table1": Study("what each model can do, shown by trying it", "Table 1", "?", "the same"),
    "table2": Study(
        "every model on the paper's tables for the same time", "Table 2", "?", "--minutes of each", "tables, optional"
    ),
    "table3": Study(
        "variational autoencoders with every posterior",
        "Table 3",
        "?",
        "hours each, or --minutes of each",
        "MNIST, Omniglot, Frey, Caltech, optional",
    ),
    "bottleneck": Study(
        "training with and without the bottleneck trick, two kinds of noise",
        "section 5.1, Figure 3",
        "?",
        "?",
        "MNIST, optional",
    ),
    "nfe-vs-dimension": Study("function evaluations against the data's dimension", "section 5.2, Figure 4", "?", "?"),
    "multiscale": Study("evaluations and loss, multi-scale against single-scale", "section 5.3, Figure 5", "?", "?"),
    "fewer-evaluations": Study(
        "what reduces evaluations and time: weight decay, spectral normalisation, regularisers, flow matching",
        "section 6",
        "?",
        "an hour and a half",
        in_all=("--data", "8gaussians", "--recipes", "paper", "loose", "weight decay", "spectral norm"),
    ),
    "tolerance": Study("does the density integrate to one? Error against tolerance", "appendix C", "?", "?"),
    "noise-variance": Study("what the trace's noise does to a log-likelihood", "section 4", "?", "?"),
    "adjoint-memory": Study("memory and time of three gradients against solver steps", "section 2.2.1", "?", "?"),
    "samples": Study("samples of image models beside data", "appendix A", "?", "?", "images of the runs given"),
}
