"""Compiled programs are kept in the user's cache directory, so that the second start is quick."""

import os


def enable() -> None:
    """Turns JAX's persistent compilation cache on, unless FFJORD_CACHE=off or JAX has been told where to keep it.

    FFJORD_CACHE may also name a directory.
    """
    choice = os.environ.get("FFJORD_CACHE", "")
    if choice == "off" or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    import jax
    import platformdirs

    folder = choice or platformdirs.user_cache_path("ffjord") / "compiled"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
