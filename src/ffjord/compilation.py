"""How programs are compiled: with which of XLA's settings, and that they are kept for the next start."""

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import platformdirs
from jax.extend.core import get_opaque_trace_state

_SETTINGS = {"cpu": {"xla_cpu_experimental_ynn_fusion_type": ""}}
"""XLA's settings for a backend, where they are not its own. On CPUs: no kernels of YNNPACK, which are slower on small
products than those that XLA writes itself (docs/performance.md)."""


def enable_cache() -> None:
    """Keeps compiled programs in the user's cache directory, so that the second start is quick.

    Not if FFJORD_CACHE=off, or JAX has been told where to keep them. FFJORD_CACHE may also name a directory. The
    commands call this as they start, and the library when it first compiles a program of its own.
    """
    choice = os.environ.get("FFJORD_CACHE", "")
    told = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if choice == "off" or told:
        return
    folder = choice or platformdirs.user_cache_path("ffjord") / "compiled"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # many small programs take a second together
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`equinox.filter_jit` with our settings; as a part of somebody else's program, with theirs."""
    as_part = eqx.filter_jit(function)

    @functools.cache
    def alone() -> Callable[..., Any]:
        enable_cache()
        return eqx.filter_jit(function, **_settings(jax.default_backend()))

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return (alone() if _trace_state() == _UNTRACED else as_part)(*args)

    return call


def _trace_state() -> Any:
    return get_opaque_trace_state(convention="flax")


with ThreadPoolExecutor(1) as _thread:  # of its own: this module may be imported while a program is traced
    _UNTRACED = _thread.submit(_trace_state).result()


@functools.cache
def _settings(backend: str) -> dict[str, Any]:
    """The arguments of `jit` for a backend, or none where its XLA does not know them."""
    settings: dict[str, Any] = {"compiler_options": _SETTINGS.get(backend, {})}
    try:
        jax.jit(lambda: 0, **settings).lower().compile()
    except jax.errors.JaxRuntimeError:
        return {}
    return settings
