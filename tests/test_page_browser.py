"""The page as a person uses it: in a browser, with keyboard and mouse, by day and by night, on a phone."""

from pathlib import Path

import pytest

from ffjord.report.page import Entry, page, read_facts, write_page
from ffjord.report.page.picture import picture, without_picture
from ffjord.runs import write_json
from tests.browser import PROGRAM, Tab, browser
from tests.page_runs import CHECKS, append_metrics, make_run, write_metrics, write_results

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed")

FIGURE = "document.querySelector('figure.plane')"
SLIDER = f"{FIGURE}.querySelector('input.time')"
CLOCK = f"{FIGURE}.querySelector('.clock').textContent"
DENSITY, SAMPLES = (f"{FIGURE}.querySelector('canvas.{name}')" for name in ("density", "samples"))
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def html(tmp_path_factory) -> Path:
    """A page with two runs, one of them with everything that a page can have."""
    folder = tmp_path_factory.mktemp("page")
    run, other = (
        make_run(folder / "moons"),
        make_run(folder / "a-run-with-a-very-long-name-indeed-longer", weights=False),
    )
    for one in (run, other):
        write_metrics(one, 60)
        write_results(one)
    append_metrics(run, [{"step": 40, "event": "rollback", "reason": "a_very_long_reason" * 5, "rate_scale": 0.33}])
    write_json(run.path / "check.json", CHECKS)
    entries = [Entry(read_facts(run, "moons"), picture(run, seed=0))]
    entries += [Entry(read_facts(other, str(other.path)), without_picture("nothing"))]
    write_page(folder / "page.html", page(entries, notes=["A note."]))
    return folder / "page.html"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("browser")) as tab:
        yield tab


@pytest.fixture
def tab(chromium, html) -> Tab:
    """The page, freshly opened in a wide window by day."""
    chromium.resize(1200, 900)
    chromium.prefer("light")
    chromium.errors.clear()
    chromium.open(html)
    return chromium


def pixels(tab: Tab, canvas: str) -> str:
    return tab.evaluate(f"{canvas}.toDataURL()")


def darkness(tab: Tab, across: float, up: float) -> float:
    """How far the density's colour at a place of its panel is from white, from 0 to 765."""
    read = f"""(() => {{
        const c = {DENSITY}, scale = c.width / c.clientWidth, side = c.clientWidth - 42;
        const pixel = [34 + {across} * side, (1 - {up}) * side].map((v) => Math.round(v * scale));
        return [...c.getContext('2d').getImageData(...pixel, 1, 1).data];
    }})()"""
    return 765 - sum(tab.evaluate(read)[:3])


def test_nothing_goes_wrong_and_nothing_is_fetched(tab):
    assert tab.errors == []
    assert tab.evaluate("performance.getEntriesByType('resource').length") == 0
    drawn = "[...document.querySelectorAll('figure')].every(f => f.querySelector('canvas, svg'))"
    assert tab.evaluate(drawn)


def test_the_numbers_are_there_to_read(tab):
    read = "[...document.querySelectorAll('#run-1 .tiles dd')].map(dd => dd.textContent)"
    assert tab.evaluate(read)[0] == "2.3333 ± 0.0032 nats"
    value = "Number(document.querySelector('#run-1 .tiles data').value)"
    assert tab.evaluate(value) == 2.3333475703048707


def test_the_keyboard_reaches_everything_in_order(tab):
    what = "(e => e.className || e.type || e.tagName)(document.activeElement)"
    order = []
    tab.evaluate(f"{FIGURE}.closest('article').previousElementSibling.querySelector('.plot, input, a')?.focus()")
    for _ in range(30):
        tab.press("Tab")
        order.append(tab.evaluate(what))
    start = order.index("play")
    assert order[start : start + 4] == ["play", "time", "field", "points"]


def test_arrow_keys_move_the_time_and_the_picture(tab):
    before = [pixels(tab, canvas) for canvas in (DENSITY, SAMPLES)]
    assert tab.evaluate(CLOCK) == "t = 1.00"
    tab.evaluate(f"{SLIDER}.focus()")
    for _ in range(25):
        tab.press("ArrowLeft")
    assert tab.evaluate(CLOCK) == "t = 0.75"
    assert tab.evaluate(f"{SLIDER}.getAttribute('aria-valuetext')") == "t = 0.75"
    after = [pixels(tab, canvas) for canvas in (DENSITY, SAMPLES)]
    assert all(a != b for a, b in zip(before, after, strict=True))
    tab.press("ArrowRight")
    assert tab.evaluate(CLOCK) == "t = 0.76"


def test_at_the_start_the_density_is_the_bases(tab):
    tab.evaluate(f"{FIGURE}.querySelector('input.field').click()")
    tab.evaluate(f"{SLIDER}.focus()")
    tab.press("Home")
    assert tab.evaluate(CLOCK) == "t = 0.00"
    assert float(tab.evaluate(f"{FIGURE}.dataset.mass")) == pytest.approx(1, abs=0.02)
    low, high = tab.evaluate(f"(d => [d.low, d.high])(JSON.parse({FIGURE}.querySelector('script').textContent))")
    across, up = (-a / (b - a) for a, b in zip(low, high, strict=True))  # where the base has its middle
    around = [darkness(tab, across + dx, up + dy) for dx, dy in ((0.2, 0), (-0.2, 0), (0, 0.2), (0, -0.2))]
    assert darkness(tab, across, up) > max(around) + 100
    assert max(around) - min(around) < 60  # the base is round


def test_the_mouse_drags_the_time(tab):
    tab.evaluate(f"{SLIDER}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    box = tab.evaluate(f"(b => [b.left, b.right, (b.top + b.bottom) / 2])({SLIDER}.getBoundingClientRect())")
    tab.drag((box[1] - 8, box[2]), ((box[0] + box[1]) / 2, box[2]))
    assert float(tab.evaluate(f"{SLIDER}.value")) == pytest.approx(0.5, abs=0.03)


def test_space_plays_and_pauses(tab):
    tab.evaluate(f"{SLIDER}.focus()")
    tab.press("Home")
    before, scrolled = pixels(tab, SAMPLES), tab.evaluate("scrollY")
    tab.press(" ")
    tab.wait(f"Number({SLIDER}.value) > 0.02")
    assert tab.evaluate(f"{FIGURE}.querySelector('.play').getAttribute('aria-label')") == "Pause"
    tab.press(" ")
    paused = float(tab.evaluate(f"{SLIDER}.value"))
    assert pixels(tab, SAMPLES) != before
    tab.evaluate("new Promise(done => setTimeout(done, 200))")
    assert float(tab.evaluate(f"{SLIDER}.value")) == paused
    assert tab.evaluate("scrollY") == scrolled  # as the space bar does elsewhere


def test_the_button_plays_from_the_start_to_the_end(tab):
    tab.evaluate(f"{FIGURE}.querySelector('.play').focus()")
    tab.press(" ")
    tab.wait(f"Number({SLIDER}.value) < 0.9")
    tab.wait(f"{CLOCK} === 't = 1.00' && {FIGURE}.querySelector('.play').getAttribute('aria-label') === 'Play'")


def test_what_is_switched_off_is_gone(tab):
    for name, canvas in (("field", DENSITY), ("points", SAMPLES)):
        before = pixels(tab, canvas)
        tab.evaluate(f"{FIGURE}.querySelector('input.{name}').click()")
        gone = pixels(tab, canvas)
        tab.evaluate(f"{FIGURE}.querySelector('input.{name}').click()")
        assert gone != before == pixels(tab, canvas)


def test_night_changes_page_and_pictures(tab):
    day = tab.evaluate(BACKGROUND), pixels(tab, DENSITY)
    tab.prefer("dark")
    tab.wait(f"{BACKGROUND} === 'rgb(18, 17, 28)'")
    tab.evaluate("new Promise(done => requestAnimationFrame(done))")
    assert day[0] != "rgb(18, 17, 28)"
    assert pixels(tab, DENSITY) != day[1]


@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_never_scrolls_sideways(tab, html, width):
    tab.resize(width, 800, phone=True)
    tab.open(html)
    tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    widest = "Math.max(...[...document.querySelectorAll('main *')].map(e => e.getBoundingClientRect().right))"
    assert tab.evaluate(widest) <= width + 1
    assert tab.errors == []


def test_curves_can_be_read_with_the_keyboard_and_against_the_time(tab):
    chart = "document.querySelector('#run-1 .training figure.chart')"
    tab.evaluate(f"{chart}.querySelector('.plot').focus()")
    tab.press("ArrowLeft")
    told = tab.evaluate(f"{chart}.querySelector('output').textContent")
    assert told.startswith("step 59 (5.9 s): training 2.017, validation 2.0267")
    labels = f"[...{chart}.querySelectorAll('text.x')].map(e => e.textContent)"
    assert tab.evaluate(labels)[-1] == "60"
    tab.evaluate("document.querySelector('#run-1 .axes input[value=seconds]').click()")
    assert tab.evaluate(labels)[-1] == "6 s"
