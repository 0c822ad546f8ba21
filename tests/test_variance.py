"""The study of estimators: true to a flow whose spread is known, and drawn whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib._pylab_helpers import Gcf
from PIL import Image

from ffjord.bijections import CNF, Chain, Numerics, Standardize
from ffjord.divergence import Exact
from ffjord.dynamics import MLP
from ffjord.flow import Flow, StandardNormal
from ffjord.report.variance import draw_variance, possible, variance_study, variance_table
from ffjord.solve import Solver

pytestmark = pytest.mark.usefixtures("x64")

KEY = jax.random.key(0)
MATRIX = np.array([[1.0, 2.0, -0.5], [0.3, -2.0, 1.5], [0.7, 0.1, 0.5]]) / 2


@pytest.fixture
def flow():
    """x = 2 exp(A) z: the trace is the same at every point, and a step of Euler's method integrates it exactly."""
    mlp = MLP(3, (), layer="ignore", key=KEY)
    mlp = jax.tree.map(lambda leaf: jnp.asarray(MATRIX) if leaf.ndim == 2 else leaf, mlp)
    cnf = CNF(mlp, testing=Numerics(Exact(), Solver("euler", num_steps=1)))
    return Flow(StandardNormal((3,)), Chain([cnf, Standardize(jnp.zeros(3), 2 * jnp.ones(3))]))


def row(estimator, products, std=0.1, bias=0.01):
    return {"estimator": estimator, "products": products, "std": std, "bias": bias}


def test_the_study_finds_the_spread_that_theory_gives(flow):
    points, repeats = 200, 8
    x = np.random.default_rng(0).normal(size=(points, 3))
    rows = variance_study(flow, x, costs=(3,), repeats=repeats, key=KEY)
    found = {row["estimator"]: row["std"] for row in rows}
    norm = np.sum(((MATRIX + MATRIX.T) / 2) ** 2)
    np.testing.assert_allclose(found["Hutchinson, Gaussian"], np.sqrt(2 * norm / 3), rtol=0.1)
    without_diagonal = norm - np.sum(np.diag(MATRIX) ** 2)
    np.testing.assert_allclose(found["Hutchinson, Rademacher"], np.sqrt(2 * without_diagonal / 3), rtol=0.1)
    assert found["orthogonal"] < 1e-10 < 0.01 < found["Hutch++"]
    for row in rows:
        assert row["products"] == 3
        assert abs(row["bias"]) < 5 * row["std"] / np.sqrt(points * repeats) + 1e-10


def test_estimators_are_studied_at_the_costs_that_they_can_have():
    found = possible((1, 3, 4, 9), 4)
    assert [k for name, k in found if name == "Hutchinson, Rademacher"] == [1, 3, 4, 9]
    assert [k for name, k in found if name == "orthogonal"] == [1, 3, 4]
    assert [k for name, k in found if name == "Hutch++"] == [3, 4]


def test_what_cannot_be_studied_is_an_error(flow):
    x = np.zeros((2, 3))
    with pytest.raises(ValueError, match=r"repeats of at least 2 .* got repeats=1"):
        variance_study(flow, x, costs=(1,), repeats=1, key=KEY)
    with pytest.raises(ValueError, match=r"costs of at least 1; .*costs=\[0\]"):
        variance_study(flow, x, costs=(0,), repeats=2, key=KEY)
    with pytest.raises(ValueError, match="no continuous part"):
        variance_study(Flow(flow.base, flow.bijection.parts[1]), x, costs=(1,), repeats=2, key=KEY)


def test_the_table_has_a_line_a_cost_and_a_column_an_estimator():
    rows = [row("orthogonal", 2), row("Hutch++", 10, 0.0123, -0.04), row("orthogonal", 10, 0.05)]
    assert variance_table(rows).splitlines() == [
        "| products | orthogonal | Hutch++ | largest bias |",
        "| ---: | ---: | ---: | ---: |",
        "| 2 | 0.1 | – | +0.01 |",
        "| 10 | 0.05 | 0.012 | -0.04 |",
    ]


def test_the_picture_has_a_panel_a_title_and_a_line_an_estimator(tmp_path):
    wide = [row("Hutchinson, Gaussian", k, k**-0.5) for k in (1, 2, 4)] + [row("orthogonal", k, 0.2) for k in (1, 2)]
    exact = [row("orthogonal", 1, 0.3), row("orthogonal", 2, 0.0)]
    picture = draw_variance({"power": wide, "a": exact, "b": exact, "c": exact})
    assert [axes.get_title(loc="left") for axes in picture.axes] == ["power", "a", "b", "c"]
    assert [len(axes.lines) for axes in picture.axes] == [2, 1, 1, 1]
    assert {axes.get_xscale() + axes.get_yscale() for axes in picture.axes} == {"loglog"}
    np.testing.assert_array_equal(picture.axes[0].lines[0].get_ydata(), [1, 2**-0.5, 0.5])
    assert picture.axes[1].get_ylim()[0] > 0.1  # what is exact does not stretch the panel
    texts = [text.get_text() for text in picture.texts]
    assert "● orthogonal" in texts
    assert not any("Hutch++" in text for text in texts)
    picture.savefig(tmp_path / "variance.png")
    assert Image.open(tmp_path / "variance.png").width > 1200
    assert not Gcf.figs


def test_a_picture_needs_rows():
    with pytest.raises(ValueError, match="at least one row"):
        draw_variance({"empty": []})
