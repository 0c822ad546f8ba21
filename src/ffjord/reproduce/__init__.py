"""Studies that `ffjord reproduce` makes again from nothing: figures and numbers by one command. Free of JAX."""

STUDIES = {
    "fewer-evaluations": "what reduces function evaluations and training time: regularisers, flow matching, solver",
}
