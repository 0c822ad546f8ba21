"""What the tests share: 64-bit numbers, a compilation cache, and a dynamics that counts its evaluations."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jaxtyping
import numpy as np
import platformdirs
import pytest

_KEPT = {
    "jax_compilation_cache_dir": str(Path(platformdirs.user_cache_dir("ffjord")) / "tests-xla"),
    "jax_persistent_cache_min_compile_time_secs": 0.2,
}
_QUICKLY = {"jax_disable_most_optimizations": True}


def pytest_configure(config: pytest.Config):
    """Keeps compiled programs, and compiles quickly: most programs run once. `make test-all` compiles as users do.

    The environment tells the same to processes that tests start.
    """
    for name, value in (_KEPT | (_QUICKLY if "not slow" in config.option.markexpr else {})).items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)


@pytest.fixture(scope="module", autouse=True)
def few_maps():
    """Forgets compiled programs after a module when there are many: a process has only 65,530 memory maps for them."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()


@pytest.fixture(scope="module")
def x64():
    """64-bit arrays for every test of a module that asks for it."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture
def x32():
    """32-bit arrays for one test, in a module that otherwise uses 64."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", False)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture
def unchecked():
    """Turns the run-time type checks off, so that the library's own errors show."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


class Tally:
    """A number that callbacks raise from any thread, and how often Python saw the call."""

    def __init__(self):
        self.lock, self.total, self.traces = threading.Lock(), 0, 0

    def add(self, *_):
        with self.lock:
            self.total += 1

    def take(self) -> int:
        """The number, after all callbacks have run; starts again from zero."""
        jax.effects_barrier()
        total, self.total = self.total, 0
        return total


class Counted(eqx.Module):
    """A dynamics or field that reports each evaluation to a tally."""

    inner: Callable
    tally: Tally = eqx.field(static=True)

    def __call__(self, t, *args):
        self.tally.traces += 1
        jax.debug.callback(self.tally.add, t)
        return self.inner(t, *args)


@pytest.fixture
def counted():
    """Wraps a dynamics; returns it with the tally of its evaluations."""

    def wrap(inner: Callable) -> tuple[Counted, Tally]:
        tally = Tally()
        return Counted(inner, tally), tally

    return wrap


@pytest.fixture(scope="session")
def build():
    """Builds a module with random arrays, without compiling its own initialisation."""

    def fill(leaf, rng):
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        return jax.numpy.asarray(rng.normal(size=leaf.shape) / 2, leaf.dtype)

    def make(constructor: Callable, *args, seed: int = 0, **kwargs):
        rng = np.random.default_rng(seed)
        shapes = eqx.filter_eval_shape(lambda: constructor(*args, **kwargs, key=jax.random.key(0)))
        return jax.tree.map(lambda leaf: fill(leaf, rng), shapes)

    return make
