"""How programs are compiled: XLA's settings where they are ours to choose, and the cache of compiled programs."""

import jax
import jax.numpy as jnp
import pytest

from ffjord import compilation


@compilation.compiled
def double(x):
    return 2 * x


@pytest.mark.parametrize(
    "call",
    [
        double,
        jax.jit(lambda x: double(x)),
        jax.jit(lambda x: x - x + double(jnp.ones(()))),
        jax.grad(lambda x: double(x) * x / 2),
        lambda x: jax.vmap(double)(x[None])[0],
        lambda x: jax.lax.scan(lambda carry, _: (double(carry), None), x, None, length=1)[0],
    ],
    ids=["alone", "jit", "jit of a constant", "grad", "vmap", "scan"],
)
def test_a_compiled_function_can_be_part_of_any_program(call):
    assert call(jnp.ones(())) == 2


def test_settings_that_xla_does_not_know_are_left_out(monkeypatch):
    monkeypatch.setitem(compilation._SETTINGS, "cpu", {"xla_no_such_setting": "1"})
    assert compilation._settings.__wrapped__("cpu") == {}


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="the settings are those for CPUs")
def test_xla_knows_our_settings():
    assert compilation._settings("cpu") == {"compiler_options": compilation._SETTINGS["cpu"]}


@pytest.fixture
def cache_folder():
    """Takes JAX's folder away for a test; tells which one it has."""
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    yield lambda: jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", before)


def test_the_cache_is_on_unless_it_is_turned_off(cache_folder, monkeypatch, tmp_path):
    monkeypatch.setenv("FFJORD_CACHE", "off")
    compilation.enable_cache()
    assert cache_folder() is None
    monkeypatch.setenv("FFJORD_CACHE", str(tmp_path))
    compilation.enable_cache()
    assert cache_folder() == str(tmp_path)
    monkeypatch.delenv("FFJORD_CACHE")
    compilation.enable_cache()
    assert cache_folder() == str(tmp_path), "JAX has been told where to keep programs"
    jax.config.update("jax_compilation_cache_dir", None)
    compilation.enable_cache()
    assert "ffjord" in cache_folder()


def test_the_library_turns_the_cache_on_when_it_first_compiles(cache_folder, monkeypatch, tmp_path):
    monkeypatch.setenv("FFJORD_CACHE", str(tmp_path))
    assert compilation.compiled(lambda x: 3 * x)(jnp.ones(())) == 3
    assert cache_folder() == str(tmp_path)
