"""Samples of image models beside data (appendix A). JAX is imported when it runs."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ffjord.reproduce.kept import Kept, fingerprint
from ffjord.reproduce.pages import Page, table, write_csv
from ffjord.runs import Run

SHOWN = 48
_COMPARED, _FEW_COMPARED = 512, 128


def study(
    out: Path,
    runs: Path,
    given: Mapping[str, Run],
    *,
    temperature: float,
    quick: bool,
    words: str,
    tell: Callable[[str], None],
) -> list[Path]:
    """A grid of samples below one of test images for every run, and numbers that compare the two."""
    out.mkdir(parents=True, exist_ok=True)
    compared, rows = _FEW_COMPARED if quick else _COMPARED, []
    for name, run in given.items():
        tell(f"{name}: samples")
        _draw(run, temperature).savefig(out / _file(name), dpi=100)
        settings = {"weights": fingerprint(run), "n": compared, "temperature": temperature}
        kept = Kept(runs / name.replace("/", "-"), **settings)
        found = kept("comparison", lambda run=run: compare(run, compared, temperature))
        rows.append({"run": name, **found})
    write_csv(out / "samples.csv", rows)
    _page(rows, given, temperature, quick=quick, words=words).write(out)
    return [out / name for name in ("README.md", *map(_file, given), "samples.csv")]


def _file(name: str) -> str:
    return f"{name.removeprefix('image/').replace('/', '-')}.png"


def _draw(run: Run, temperature: float) -> Any:
    import jax

    from ffjord.data.pictures import image_set
    from ffjord.data.source import Held
    from ffjord.report.images import figure_of_samples

    levels, data = image_set(run.experiment.data.name).levels, Held.of(run.source().test(SHOWN)).x
    choice = {"levels": levels, "n": SHOWN, "temperatures": (temperature,), "key": jax.random.key(0)}
    return figure_of_samples(run.flow(), data, **choice, title=run.experiment.summary)


def compare(run: Run, n: int, temperature: float) -> dict[str, Any]:
    """Samples against test images, both in grey levels as parts of white: means, deviations, and nearest neighbours.

    `nearest` is the mean distance (root mean square of pixels) to the nearest of the first training images, of samples
    and of test images: much smaller for samples, it would tell of copies; much larger, of images unlike any.
    """
    import jax
    import numpy as np

    from ffjord.scoring import sample_blocks

    flow, source = run.flow().tempered(temperature), run.source()
    samples = np.concatenate([*sample_blocks(flow, n, key=jax.random.key(0))])
    test, train = np.asarray(source.test(n)), _training(source)
    found: dict[str, Any] = {"n": n}
    for name, x in (("samples", samples), ("data", test)):
        found |= {f"mean_{name}": float(x.mean()), f"deviation_{name}": float(x.std())}
        found[f"nearest_{name}"] = nearest(x, train)
    return found


def _training(source: Any, most: int = 5000) -> Any:
    import numpy as np

    return (source.split.train[:most].astype(np.float32) + 0.5) / source.levels


def nearest(x: Any, others: Any) -> float:
    """The mean over images x of the distance to the nearest of the others: root mean square of pixels."""
    import numpy as np

    a, b = (part.reshape(len(part), -1).astype(np.float64) for part in (x, others))
    squares = np.sum(a**2, axis=1)[:, None] + np.sum(b**2, axis=1) - 2 * a @ b.T
    return float(np.mean(np.sqrt(np.maximum(squares.min(axis=1), 0) / a.shape[1])))


def _page(rows: list[dict[str, Any]], runs: Mapping[str, Run], temperature: float, *, quick: bool, words: str) -> Page:
    told = lambda row: (
        f"{row['run']}: pixels have mean {row['mean_samples']:.3f} and deviation {row['deviation_samples']:.3f} (test "
        f"images {row['mean_data']:.3f} and {row['deviation_data']:.3f}), and samples are {row['nearest_samples']:.3f} "
        f"away from the nearest training image (test images {row['nearest_data']:.3f})"
    )
    how = lambda run: f"`{run.path}`, {_bits(run)}"
    return Page(
        "samples",
        "Samples of image models",
        finding="; ".join(map(told, rows)) + ".",
        paper="Figures 3 and 7: samples and data of the models trained on MNIST and CIFAR10, to be judged by eye. No "
        "number is told.",
        figures={_file(name): f"test images and samples, {name}" for name in runs},
        tables=("samples.csv",),
        text=f"Above test images, below samples at temperature {temperature:g}, seed 0, none chosen. Pixels as parts "
        "of white; distances are root mean squares over pixels. Models: "
        + "; ".join(f"{name} ({how(run)})" for name, run in runs.items())
        + ".",
        below=table(
            {name: f"{value:.4g}" if isinstance(value, float) else str(value) for name, value in r.items()}
            for r in rows
        ),
        quick=quick,
        words=words,
        seed=0,
    )


def _bits(run: Run) -> str:
    """The best validation of a run's training, where it is recorded."""
    if not run.metrics.is_file():
        return "trained before"
    from ffjord.reproduce.cells import in_bits, read_metrics

    steps, validations = read_metrics(run)
    best = min((in_bits(run, row["validation_loss"]) for row in validations), default=float("nan"))
    return f"{len(steps)} steps, validation {best:.3f} bits/dim"
