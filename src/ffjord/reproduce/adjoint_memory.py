"""Memory and time of a training step against the solver's steps, for the three gradients. JAX is imported when it runs.

The solver takes a fixed number of steps of rk4, so that all gradients have the same evaluations behind them. Memory is
what XLA plans for the compiled step: inputs, outputs and everything between; not that of the process.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

from ffjord.choices import Gradient
from ffjord.reproduce.kept import Kept
from ffjord.reproduce.pages import Page, table, write_csv

GRADIENTS: tuple[Gradient, ...] = get_args(Gradient)
STEPS, FEW_STEPS = (4, 8, 16, 32, 64, 128, 256, 512), (4, 16, 64)
MOST_DIRECT = 64
"""Steps up to which the direct gradient is measured: two gigabytes with them, and twice that for twice as many."""
MODELS = {
    "mlp": ("perceptron, D = 2, 64-64-64, batch 512", (512, 2)),
    "conv": ("convolutions, 8 × 8, 32-32, batch 64", (64, 8, 8, 1)),
}
_ROUNDS = 5


def study(out: Path, runs: Path, *, steps: Sequence[int], quick: bool, tell: Callable[[str], None]) -> list[Path]:
    """Measures every model with every gradient at every number of steps."""
    kept, rows = Kept(runs, rounds=_ROUNDS), []
    for model in MODELS:
        for gradient in GRADIENTS:
            for count in (n for n in steps if gradient != "direct" or n <= MOST_DIRECT):
                found = kept(f"{model}, {gradient}, {count}", partial(measure, model, gradient, count))
                rows.append({"model": model, "gradient": gradient, "steps": count, **found})
                tell(f"{model}, {gradient}, {count} steps: {_told(found)}")
    out.mkdir(parents=True, exist_ok=True)
    draw(rows).savefig(out / "adjoint-memory.png", dpi=110)
    write_csv(out / "adjoint-memory.csv", rows)
    _page(rows, quick=quick).write(out)
    return [out / name for name in ("README.md", "adjoint-memory.png", "adjoint-memory.csv")]


def measure(model: str, gradient: Gradient, count: int) -> dict[str, Any]:
    """Bytes and processor seconds (the best of several) of a step with `count` steps of rk4, and its evaluations."""
    import jax

    flow, x = _flow(model, gradient, count), jax.random.normal(jax.random.key(1), MODELS[model][1])
    step, memory = compiled_step(flow, x, jax.random.key(2))
    seconds = min(timed(step, time.process_time) for _ in range(_ROUNDS))  # whatever else the machine has to do
    report = flow.density(x, train=True, key=jax.random.key(2)).report
    return {"bytes": memory, "seconds": seconds, "nfe": int(report.nfe)}


def compiled_step(flow: Any, x: Any, key: Any) -> tuple[Callable[[], Any], int]:
    """A call of the compiled training step, without the optimiser, and the bytes that XLA plans for it."""
    import equinox as eqx
    import jax
    import numpy as np

    from ffjord.compilation import _settings

    # As the library compiles its own training steps, but so that the program itself is at hand, to ask for its memory.
    program: Any = eqx.filter_jit(loss_and_grad, **_settings(jax.default_backend()))
    step = program.lower(flow, x, key).compile()
    if not np.isfinite(step(flow, x, key)[0]):
        raise FloatingPointError("the loss is not finite.")
    plan = step.compiled.memory_analysis()
    total = plan.argument_size_in_bytes + plan.output_size_in_bytes + plan.temp_size_in_bytes
    return lambda: step(flow, x, key), total - plan.alias_size_in_bytes


def loss_and_grad(flow: Any, x: Any, key: Any) -> tuple[Any, Any]:
    """The mean negative log-likelihood with training numerics, and its gradient."""
    import equinox as eqx

    loss = lambda flow: -flow.density(x, train=True, key=key).log_prob.mean()
    return eqx.filter_value_and_grad(loss)(flow)


def timed(call: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds until what is called has been computed, on the wall's clock or another."""
    import jax

    began = clock()
    jax.block_until_ready(call())
    return clock() - began


def _flow(model: str, gradient: Gradient, count: int) -> Any:
    import jax

    import ffjord
    from ffjord.dynamics import ConvNet

    key, shape = jax.random.key(0), MODELS[model][1][1:]
    net = ffjord.MLP(shape[0], (64, 64, 64), key=key) if model == "mlp" else ConvNet(shape[-1], (32, 32), key=key)
    solver = ffjord.Solver(method="rk4", num_steps=count, gradient=gradient)
    cnf = ffjord.CNF(net, training=ffjord.Numerics(ffjord.Hutchinson("gaussian"), solver))
    return ffjord.Flow(ffjord.StandardNormal(shape), cnf)


def draw(rows: list[dict[str, Any]]) -> Any:
    """Memory and time against steps; a row of panels for each model."""
    from ffjord.report.lines import Line, Plot, draw_plots
    from ffjord.report.style import DATA, MODEL, THIRD

    colours, plots = dict(zip(GRADIENTS, (DATA, MODEL, THIRD), strict=True)), []
    for model, (about, _) in MODELS.items():
        mine = [row for row in rows if row["model"] == model]
        ticks = sorted({row["steps"] for row in mine})
        for title, name, scale in (("memory", "bytes", 1e-6), ("time", "seconds", 1e3)):
            lines = []
            for gradient in GRADIENTS:
                points = [(row["steps"], scale * row[name]) for row in mine if row["gradient"] == gradient]
                lines.append(Line.through(gradient, points, colours[gradient]))
            label = "MB, as XLA plans" if name == "bytes" else "ms of the processor"
            title = f"{title} of a training step: {about.split(',')[0]}"
            plots.append(Plot(title, "solver steps (rk4)", label, lines, x_log=True, y_log=True, x_ticks=ticks))
    return draw_plots(plots, columns=2)


def ends(rows: list[dict[str, Any]], model: str, gradient: str) -> str:
    """Memory and time at the fewest steps and at the most."""
    mine = [row for row in rows if (row["model"], row["gradient"]) == (model, gradient)]
    span = lambda name, scale: f"{scale * mine[0][name]:.3g} → {scale * mine[-1][name]:.3g}"
    steps = f"{mine[0]['steps']} → {mine[-1]['steps']}"
    return f"{gradient} {span('bytes', 1e-6)} MB, {span('seconds', 1e3)} ms ({steps} steps)"


def _page(rows: list[dict[str, Any]], *, quick: bool) -> Page:
    told = lambda model: ", ".join(ends(rows, model, gradient) for gradient in GRADIENTS)
    return Page(
        "adjoint-memory",
        "Memory and time of three gradients",
        finding=f"perceptron: {told('mlp')}; convolutions: {told('conv')}.",
        paper="sections 2.2.1 and 6: the adjoint method computes the gradient by another call of the solver, and "
        "memory stays constant whatever the number of function evaluations. No number is told.",
        figures={"adjoint-memory.png": "memory and time against solver steps for three gradients"},
        tables=("adjoint-memory.csv",),
        text="One training step (loss and gradient) with Hutchinson's trace and a fixed number of steps of rk4, four "
        f"evaluations each. {'; '.join(about for about, _ in MODELS.values())}. Memory is what XLA plans for the "
        f"compiled step; time is that of the processor, the best of {_ROUNDS} calls. *checkpointed* is the default: "
        "the exact gradient of the discrete solve, from at most 64 states that are kept; *adjoint* the paper's, a "
        "second solve backwards; *direct* is JAX's own, from everything that the forward solve computed, up to "
        f"{MOST_DIRECT} steps.",
        below=table(_line(rows, model, n) for model in MODELS for n in sorted({row["steps"] for row in rows})),
        quick=quick,
    )


def _line(rows: list[dict[str, Any]], model: str, steps: int) -> dict[str, str]:
    of = {row["gradient"]: row for row in rows if (row["model"], row["steps"]) == (model, steps)}
    cells = {name: _told(of[name]) if name in of else "–" for name in GRADIENTS}
    return {"model": model, "steps": str(steps), "NFE": str(next(iter(of.values()))["nfe"])} | cells


def _told(found: dict[str, Any]) -> str:
    return f"{found['bytes'] / 1e6:.2f} MB, {1e3 * found['seconds']:.1f} ms"
