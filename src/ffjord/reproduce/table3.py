"""Table 3: variational autoencoders with every posterior, beside the paper's figures. Imports JAX when it runs."""

import dataclasses
import functools
import itertools
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ffjord.choices import OptimizerName
from ffjord.experiments import Experiment, find
from ffjord.experiments.vae import FFJORDS, FITTED, POSTERIORS, SETS, SPLITS, in_the_paper
from ffjord.reproduce.kept import earlier, keep
from ffjord.reproduce.pages import beside, machine
from ffjord.reproduce.recipes import changed
from ffjord.runs import Run

DATA = ("mnist", "omniglot", "frey", "caltech", "digits")
MODELS = (*POSTERIORS, *FFJORDS)
_BATCH, _RATE = 100, 1e-3
"""Images a step, and the learning rate, in the paper."""
_EACH = "bounds.npy"
"""Of a run: the bound of every test image."""
DEFAULT_MODELS = ("none", "planar", "iaf", "orthogonal", "ffjord")
"""Those of the paper's table, where one figure stands for all Sylvester flows."""


@dataclasses.dataclass(frozen=True)
class Budget:
    """How long a cell trains, and how it is scored."""

    minutes: float | None = None
    """Of training; until validation stalls, if not given."""
    epochs: float | None = None
    """Of training, at most."""
    base: float | None = None
    """Minutes of training without a flow before that, once for all posteriors: they start from its encoder and
    decoder."""
    base_epochs: float | None = None
    """The same in epochs; the first that is reached ends it."""
    warmup: float | None = None
    """Epochs over which the KL term's weight rises; the experiment's own if not given."""
    average: float | None = None
    """Decay of averaged weights, the same for all; the experiment's own if not given, and the paper has none."""
    batch: int | None = None
    """Images a step, the same for all; the paper's 100 if not given."""
    optimizer: OptimizerName | None = None
    """Of what starts from the base, if there is one: the base has the paper's. The same for all; Adam if not given."""
    learning_rate: float | None = None
    """Of what starts from the base, too; 1e-3 if not given."""
    clip: float | None = None
    """Longest gradient, of what starts from the base, too; none if not given."""
    fit_flow: int | None = None
    """Steps, at most, in which flows learn alone, of what starts from the base; none if not given."""
    flow_rate: float | None = None
    """Factor of the learning rate for those flows afterwards; 1 if not given."""
    limit: int | None = None
    """Test images, at most."""
    draws: int = 1
    """Of z, for every test image."""
    importance: int | None = None
    """Samples an image for the likelihood."""


def settings(
    data: str, posterior: str, seed: int, budget: Budget, data_dir: str | None = None, base: Path | None = None
) -> Experiment:
    """The experiment of one run, which may start from another. Frey's faces are split by another seed in each."""
    experiment = find(f"vae/{data}{FFJORDS.get(posterior, f'-{posterior}')}")
    changes: dict[str, Any] = {"data.data_dir": data_dir, "train.max_minutes": budget.minutes}
    if data == "frey":
        changes["data.shuffle"] = SPLITS[seed % len(SPLITS)]
    epoch = experiment.train.validate_every
    if budget.batch is not None:
        epoch = -(-epoch * experiment.train.batch_size // budget.batch)
        longer = epoch / experiment.train.validate_every
        changes |= {"train.batch_size": budget.batch, "train.validate_every": epoch}
        changes |= {f"train.{name}": round(longer * getattr(experiment.train, name)) for name in ("steps", "kl_warmup")}
    if budget.epochs is not None:
        changes["train.steps"] = max(1, round(budget.epochs * epoch))
    if budget.warmup is not None:
        changes["train.kl_warmup"] = round(budget.warmup * epoch)
    if base is not None:
        # Adam knows nothing at first, and its first steps are as long as any: they would undo what is there.
        changes |= {"train.start_from": str(base), "train.kl_warmup": 0, "train.warmup": epoch}
        if budget.fit_flow and experiment.model.posterior in FITTED:
            changes["train.fit_flow"] = budget.fit_flow
            changes |= {} if budget.flow_rate is None else {"train.flow_rate": budget.flow_rate}
    given = {name: getattr(budget, name) for name in ("average", "optimizer", "learning_rate", "clip")}
    changes |= {f"train.{name}": value for name, value in given.items() if value is not None}
    return dataclasses.replace(changed(experiment, changes), seed=seed)


def study(
    out: Path,
    runs: Path,
    *,
    data: Iterable[str],
    posteriors: Iterable[str],
    seeds: int,
    budget: Budget,
    data_dir: str | None = None,
    quick: bool = False,
    tell: Callable[[str], None],
) -> list[Path]:
    """Trains and scores every posterior on every set with every seed, and writes the table after each of them."""
    from ffjord.reproduce.cells import kept_result

    results, files = earlier(out), []
    for name in data:
        bases = [_base(runs / name, name, seed, budget, data_dir, tell) for seed in range(seeds)]
        for posterior in (posterior for posterior in posteriors if is_there(name, posterior)):
            for seed, base in enumerate(bases):
                tell(f"{name}, {posterior}, seed {seed}")
                experiment = settings(name, posterior, seed, budget, data_dir, base)
                score = lambda run: _scored(run, budget)
                found = kept_result(runs / name / posterior / str(seed), experiment, score)
                about = {"data": name, "posterior": posterior, "seed": seed, "minutes": budget.minutes}
                about |= {"at_most_epochs": budget.epochs} if budget.epochs else {}
                about |= {"warmup": budget.warmup} if budget.warmup and base is None else {}
                about |= {"base": budget.base, "batch": experiment.train.batch_size}
                about |= {"base_epochs": budget.base_epochs} if budget.base_epochs else {}
                about |= {"optimizer": experiment.train.optimizer, "learning_rate": experiment.train.learning_rate}
                about |= {"clip": experiment.train.clip}
                about |= {"fit_flow": budget.fit_flow} if budget.fit_flow else {}
                about |= {"flow_rate": budget.flow_rate} if budget.flow_rate else {}
                about |= _better_than_none(runs / name, posterior, seed, experiment.data.name)
                epochs = found["steps"] / experiment.train.validate_every
                results[f"{name}, {posterior}, {seed}"] = about | {"epochs": epochs} | found
                out.mkdir(parents=True, exist_ok=True)
                draw(list(results.values())).savefig(out / "table3.png", dpi=110)
                files = keep(out, results, functools.partial(as_markdown, quick=quick))
    return files


def _base(
    folder: Path, data: str, seed: int, budget: Budget, data_dir: str | None, tell: Callable[[str], None]
) -> Path | None:
    """The run that all posteriors start from, trained without a flow and with Adam, if there is time for it.

    Its name has its length, so that posteriors which started from a shorter one are not taken for those of a longer.
    """
    from ffjord.reproduce.cells import trained

    limits = {"": budget.base, "-epochs": budget.base_epochs}
    length = "".join(f"-{value:g}{unit}" for unit, value in limits.items() if value is not None)
    if not length:
        return None
    path = folder / f"base{length}" / str(seed)
    tell(f"{data}, what all start from, seed {seed}")
    own = dataclasses.replace(budget, minutes=budget.base, epochs=budget.base_epochs)
    own = dataclasses.replace(own, optimizer=None, learning_rate=None, clip=None)
    trained(path, settings(data, "none", seed, own, data_dir))
    return path


def draw(rows: list[dict[str, Any]]) -> Any:
    """Test bounds beside the paper's: means over runs, with their deviations or the error of a single one."""
    from ffjord.report.standings import Standing, Standings, draw_standings

    panels = []
    for data in dict.fromkeys(row["data"] for row in rows):
        sound = [row for row in rows if row["data"] == data and "failed" not in row]
        known = []
        for name in dict.fromkeys(row["posterior"] for row in sound):
            loss, error = map(
                float, estimate([r for r in sound if r["posterior"] == name], "negative_elbo").split(" ± ")
            )
            paper = in_the_paper(data, name).split(" ± ")[0]
            known.append(Standing(name, loss, error, float(paper) if paper != "–" else None))
        unit = "bits/dim" if any("negative_elbo_bits_per_dim" in row for row in sound) else "nats"
        panels.append(Standings(data, f"test negative ELBO, {unit}", known))
    return draw_standings(panels)


def is_there(data: str, posterior: str) -> bool:
    """Whether there is such an experiment: of FFJORD, the digits, which are not the paper's, have one form."""
    return data in SETS or posterior == "ffjord" or posterior not in FFJORDS


def _scored(run: Run, budget: Budget) -> dict[str, Any]:
    """What the test images say of a run; the bound of each stays with the run."""
    import numpy as np

    from ffjord.cli.evaluate import evaluate

    each: list[Any] = []
    found = evaluate(run, budget.limit, draws=budget.draws, importance=budget.importance, kept=each)
    np.save(run.path / _EACH, np.concatenate(each))
    return found


def _better_than_none(folder: Path, posterior: str, seed: int, images: str) -> dict[str, float]:
    """By how much the bound is above that without a flow, on average over the same test images, and the error of that:
    images differ more from each other than posteriors do, so that it is much smaller than those of the two bounds."""
    import numpy as np

    from ffjord.cli.autoencoder import named
    from ffjord.data.discrete import discrete_set
    from ffjord.vae.scoring import Estimate

    mine, plain = (folder / name / str(seed) / _EACH for name in (posterior, "none"))
    if posterior == "none" or not (mine.is_file() and plain.is_file()):
        return {}
    ours, theirs = np.load(mine), np.load(plain)
    if len(ours) != len(theirs):  # scored with another --limit
        return {}
    return named("better_by", Estimate.of(ours - theirs), discrete_set(images))


def as_markdown(rows: list[dict[str, Any]], *, quick: bool = False) -> str:
    """README.md of the study."""
    lines = [
        "# Table 3: variational autoencoders",
        "",
        f"Made by `ffjord reproduce table3 {'--quick' if quick else '--data … --posterior …'}` on {machine()}. Test",
        "negative ELBO with the exact trace, in nats, or in bits a dimension for grey levels. Validation chooses the",
        "weights; the test images are scored once. Of several runs, with other seeds, the mean and the standard",
        "deviation (of Frey's faces with other splits too); of a single one the standard error over test images.",
        "*Better by*: than without a flow, on average over the same test images. *KL* is a part of the ELBO. *NLL*: by",
        "importance sampling. *Epochs* and *minutes*: of training steps.",
        "Training stops when 100 epochs have brought nothing, as in the paper, or at the limit that the heading",
        "tells; a step takes 100 images, and Adam's are 1e-3 long, as in the paper, if it does not tell otherwise.",
        "Where it tells of training without a flow, all posteriors start from the encoder and decoder of one",
        "autoencoder, trained for so long with Adam.",
        "",
        *beside(*_finding(rows)),
        "",
        *([*between, ""] if (between := _run_by_run(rows)) else []),
        "![bounds beside the paper's](table3.png)",
        "",
        "Data: [results.csv](results.csv).",
    ]
    for data in dict.fromkeys(row["data"] for row in rows):
        mine = [row for row in rows if row["data"] == data]
        known = {
            "after {} minutes without a flow": {row.get("base") for row in mine},
            "after {} epochs without a flow": {row.get("base_epochs") for row in mine},
            "at most {} minutes a run": {row["minutes"] for row in mine},
            "at most {} epochs a run": {row.get("at_most_epochs") for row in mine},
            "over {} epochs of which the KL term's weight rises": {row.get("warmup") for row in mine},
            "{} images a step": {row.get("batch", _BATCH) for row in mine} - {_BATCH},
        }
        steps = {(row.get("optimizer", "adam"), row.get("learning_rate", _RATE)) for row in mine} - {("adam", _RATE)}
        listed = {text: ", ".join(f"{value:g}" for value in sorted(of - {None})) for text, of in known.items()}
        limits = [text.format(values) for text, values in listed.items() if values]
        limits += [f"{name} at {rate:g}" for name, rate in sorted(steps)]
        limits += [f"at most {n} steps of a flow alone first" for n in {row.get("fit_flow") for row in mine} - {None}]
        limits += [
            f"{rate:g} of the learning rate for it then" for rate in {row.get("flow_rate") for row in mine} - {None}
        ]
        limits += [f"gradients clipped at {clip:g}" for clip in {row.get("clip") for row in mine} - {None}]
        notes = [f"Note: {note}." for note in dict.fromkeys(row.get("data_note") for row in mine) if note]
        heading = f"## {data}: {', '.join(limits)}" if limits else f"## {data}"
        lines += ["", heading, "", *_table(data, mine), *(["", *notes] if notes else [])]
    return "\n".join([*lines, ""])


def _finding(rows: list[dict[str, Any]]) -> tuple[str, str]:
    """What was found, and what the paper says."""
    told = []
    for data, order in _orders(rows).items():
        told.append(f"{data}: {' < '.join(f'{name} {_mean(runs)}' for name, runs in order.items())}")
    return f"{'; '.join(told)}.", "Table 3: FFJORD has the least negative ELBO on all four sets."


def _run_by_run(rows: list[dict[str, Any]]) -> list[str]:
    """By how much each posterior is better than the next, where both have several runs of the same seeds: these have
    the same images and the same start, so that the differences vary less than the bounds."""
    lines = []
    for data, order in _orders(rows).items():
        for (better, mine), (worse, theirs) in itertools.pairwise(order.items()):
            by_seed = {row.get("seed"): row for row in theirs}
            pairs = [(row, by_seed[row.get("seed")]) for row in mine if row.get("seed") in by_seed]
            if len(pairs) > 1:
                name, digits = _named(mine, "negative_elbo")
                by = [other[name] - one[name] for one, other in pairs]
                wins, difference = sum(value > 0 for value in by), statistics.fmean(by)
                lines.append(
                    f"- {data}: {better} is better than {worse} in {wins} of {len(by)} runs with the same seed, "
                    f"by {difference:.{digits}f} ± {statistics.stdev(by):.{digits}f}."
                )
    return lines


def _orders(rows: list[dict[str, Any]]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Of every set of images, the runs of each posterior that did not fail, the best posterior first."""
    orders = {}
    for data in dict.fromkeys(row["data"] for row in rows):
        sound = [row for row in rows if row["data"] == data and "failed" not in row]
        of = {name: [row for row in sound if row["posterior"] == name] for name in {row["posterior"] for row in sound}}
        if of:
            best = lambda item: statistics.fmean(row["negative_elbo"] for row in item[1])
            orders[data] = dict(sorted(of.items(), key=best))
    return orders


def _mean(rows: list[dict[str, Any]]) -> str:
    return estimate(rows, "negative_elbo").split(" ± ")[0]


def _table(data: str, rows: list[dict[str, Any]]) -> list[str]:
    head = ("posterior", "parameters", "runs", "epochs", "minutes", "-ELBO", "better by", "KL", "NLL", "NFE")
    lines = [f"| {' | '.join(head)} | in the paper |", "|" + "---|" * (len(head) + 1)]
    for posterior in dict.fromkeys(row["posterior"] for row in rows):
        lines.append(f"| {' | '.join(_cells(data, [row for row in rows if row['posterior'] == posterior]))} |")
    return lines


def _cells(data: str, rows: list[dict[str, Any]]) -> list[str]:
    """One posterior's row of the table, from all of its runs."""
    sound = [row for row in rows if "failed" not in row]
    runs = str(len(rows)) if len(sound) == len(rows) else f"{len(rows)}, of which {len(rows) - len(sound)} failed"
    mean = lambda name, of=rows: statistics.fmean(row[name] for row in of)
    minutes = mean("train_seconds") / 60
    spent = [runs, f"{mean('epochs'):.0f}", f"{minutes:.0f}" if minutes >= 10 else f"{minutes:.1f}"]
    name, paper = rows[0]["posterior"], in_the_paper(data, rows[0]["posterior"]).split(" bits")[0].removesuffix(" nats")
    if not sound:
        return [name, "", *spent, "", "", "", "", "", paper]
    figures = [estimate(sound, figure) for figure in ("negative_elbo", "better_by", "kl", "test_nll")]
    nfe = f"{mean('nfe', sound):.0f}" if mean("nfe", sound) else "–"
    return [name, f"{sound[0]['parameters']:,}", *spent, *figures, nfe, paper]


def estimate(rows: list[dict[str, Any]], name: str) -> str:
    """The mean and deviation of a figure over runs; of one run, its standard error."""
    name, digits = _named(rows, name)
    known = [row for row in rows if name in row]
    if not known:
        return "–"
    values = [row[name] for row in known]
    spread = statistics.stdev(values) if len(values) > 1 else known[0][f"{name}_stderr"]
    return f"{statistics.fmean(values):.{digits}f} ± {spread:.{digits}f}"


def _named(rows: list[dict[str, Any]], name: str) -> tuple[str, int]:
    """What a figure is called in the unit in which it is told, and its decimals: bits/dim for grey levels."""
    bits = f"{name}_bits_per_dim"
    return (bits, 3) if any(bits in row for row in rows) else (name, 2)
