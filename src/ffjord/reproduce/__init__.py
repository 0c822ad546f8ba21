"""Studies that `ffjord reproduce` makes again from nothing: figures and numbers by one command. Free of JAX."""

STUDIES = {
    "figure2": "Glow and FFJORD on the eight toys, side by side (--quick: minutes; an hour or two)",
    "table1": "what each model can do, shown by trying it (a minute)",
    "table2": "every model on the paper's tables for the same time (--quick: minutes; --minutes of each model)",
    "table3": "variational autoencoders with every posterior (--quick: minutes; hours each, or --minutes of each)",
    "fewer-evaluations": "what reduces function evaluations and training time (--quick: minutes; an hour and a half)",
}
