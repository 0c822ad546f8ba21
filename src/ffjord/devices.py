"""Many devices, many processes: batches are split over all of them, weights have a copy on each.

All processes run the same program on the same data; what differs is which rows of a batch their devices work on. One of
them, the writer, reads and writes the run directory. On one device nothing here does anything.
"""

import functools
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import ffjord.errors as errors
from ffjord.errors import Answer, InputError, PeerError

T = TypeVar("T")

_ROWS = "rows"
"""The mesh's one axis."""
_LOST = ("gloo", "nccl", "unavailable", "deadline", "connection", "socket", "heartbeat", "coordination", "peer")


def connect(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    seconds: float = 300.0,
) -> None:
    """Joins the other processes: by the cluster's own means (Slurm, Open MPI, Kubernetes), or at a given address.

    Where they don't come in time the process ends with a message and code 1: JAX itself would abort.
    """
    given = {"coordinator": coordinator, "num_processes": num_processes, "process_id": process_id}
    if coordinator is None and any(value is not None for value in given.values()):
        raise InputError("--num-processes and --process-id need --coordinator ADDRESS:PORT.")
    if coordinator is not None:
        _check_address(coordinator, num_processes, process_id)
    arrived = threading.Event()
    place = coordinator or "the address that the cluster names"
    message = (
        f"ffjord: not all processes came together within {seconds:.0f} s at {place}. Is each one started, with the same"
        " --coordinator and --num-processes and its own --process-id, and can it reach the coordinator? --peer-minutes "
        "sets how long to wait."
    )
    threading.Thread(target=_give_up_after, args=(seconds, arrived, message), daemon=True).start()
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            initialization_timeout=int(seconds) + 60,
            heartbeat_timeout_seconds=max(10, int(seconds)),
        )
    except (ValueError, RuntimeError) as error:
        raise InputError(
            f"the processes could not be joined ({str(error).splitlines()[0]}). Without Slurm, Open MPI or Kubernetes, "
            "say --coordinator ADDRESS:PORT --num-processes N --process-id I."
        ) from error
    finally:
        arrived.set()


def is_writer() -> bool:
    """Whether this process is the one that reads and writes the run directory."""
    return jax.process_index() == 0


def from_writer(make: Callable[[], T]) -> T:
    """What `make` returns on the writer (plain values), or the error it raises there, on every process."""
    if jax.process_count() == 1:
        return make()
    parcel: dict[str, Any] = {}
    if is_writer():
        try:
            parcel = {"value": make()}
        except Answer as error:
            parcel = {"error": type(error).__name__, "message": str(error)}
        except OSError as error:
            parcel = {"error": "StorageError", "message": f"{error.filename}: {error.strerror}."}
    text = np.frombuffer(json.dumps(parcel).encode(), np.uint8)
    length = int(_broadcast(np.asarray(len(text))))
    text = _broadcast(np.resize(text, length))
    parcel = json.loads(text.tobytes().decode())
    if "error" in parcel:
        raise getattr(errors, parcel["error"])(parcel["message"])
    return parcel["value"]


def arrays_from_writer(tree: T) -> T:
    """The tree with the arrays that it has on the writer."""
    if jax.process_count() == 1:
        return tree
    arrays, rest = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.tree.map(jnp.asarray, _broadcast(jax.tree.map(np.asarray, arrays))), rest)


def agree(seconds: float) -> float:
    """The time that the writer measured, by which all go."""
    return seconds if jax.process_count() == 1 else float(_gather(seconds)[0])


def anyone(flag: bool) -> bool:
    """Whether the flag is set on any process."""
    return flag if jax.process_count() == 1 else bool(_gather(flag).any())


def check_batch(size: int) -> None:
    """Refuses a batch that cannot be split evenly."""
    if size % jax.device_count():
        raise InputError(f"batch_size must be a multiple of the {jax.device_count()} devices; got {size}.")


def padded_size(size: int) -> int:
    """The smallest number of rows, at least `size`, that can be split evenly."""
    return -(-size // jax.device_count()) * jax.device_count()


def split(rows: np.ndarray, *, axis: int = 0) -> Any:
    """An array that every process holds, with its rows spread over all devices."""
    if jax.device_count() == 1:
        return rows
    spread = NamedSharding(_mesh(), PartitionSpec(*[None] * axis, _ROWS))
    return jax.make_array_from_callback(rows.shape, spread, lambda index: rows[index])


def copied(tree: T) -> T:
    """The tree with its arrays copied to all devices; inside a compiled program, the demand that they be copies."""
    if jax.device_count() == 1:
        return tree
    everywhere = NamedSharding(_mesh(), PartitionSpec())

    def copy(leaf: Any) -> Any:
        if isinstance(leaf, Tracer):
            return jax.lax.with_sharding_constraint(leaf, everywhere)
        if isinstance(leaf, jax.Array) and leaf.sharding == everywhere:
            return leaf
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(copy(jax.random.key_data(leaf)))
        host = np.asarray(leaf)
        return jax.make_array_from_callback(host.shape, everywhere, lambda index: host[index])

    return jax.tree.map(lambda leaf: copy(leaf) if eqx.is_array(leaf) else leaf, tree)


def spread() -> Any:
    """A stretch of work whose solves take place on all devices at once, each with its part of the rows."""
    return nullcontext() if jax.device_count() == 1 else jax.set_mesh(_mesh())


def on_each(function: Callable[[Any, Any, str | None], tuple[Any, Any]], shared: Any, rows: Any) -> tuple[Any, Any]:
    """`function(shared, rows, axis)` on every device of `spread`, each with its part of the rows.

    It returns results of its rows, and results that are the same everywhere; `axis` is the name by which it can sum
    over devices. Gradients by `shared` are summed over devices once, and not in every step of a loop. Outside of
    `spread`, or where the rows cannot be split evenly, there is one call with all rows and no axis.
    """
    mesh = jax.sharding.get_abstract_mesh()
    n = len(jax.tree.leaves(rows)[0])
    if mesh.axis_names != (_ROWS,) or not mesh.are_all_axes_auto or n % mesh.size:
        return function(shared, rows, None)
    arrays, rest = eqx.partition(shared, eqx.is_array)
    local = lambda arrays, rows: function(eqx.combine(arrays, rest), rows, _ROWS)
    everywhere, split = PartitionSpec(), PartitionSpec(_ROWS)
    return jax.shard_map(local, in_specs=(everywhere, split), out_specs=(split, everywhere), check_vma=False)(
        arrays, rows
    )


def fetch(array: Any) -> np.ndarray:
    """The whole of an array on every process, wherever its rows are."""
    if isinstance(array, jax.Array) and not (array.is_fully_addressable or array.is_fully_replicated):
        from jax.experimental import multihost_utils

        array = multihost_utils.process_allgather(array, tiled=True)
    return np.asarray(array)


@contextmanager
def together() -> Iterator[None]:
    """A stretch of work in which a process that dies is a `PeerError` in the others."""
    try:
        yield
    except Answer:
        raise
    except Exception as error:
        text = str(error)
        if jax.process_count() > 1 and any(word in text.lower() for word in _LOST):
            first = text.splitlines()[0]
            raise PeerError(
                f"lost contact with another process ({first[:160]}). Its own output tells why; when that is mended, "
                "start all processes again with `ffjord resume`."
            ) from error
        raise


def leave(code: int) -> int:
    """The exit code; a process that failed leaves at once, where it would wait for others that wait for it."""
    if code != 0 and "jax" in sys.modules and jax.distributed.is_initialized():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


@functools.cache
def _mesh() -> Mesh:
    return Mesh(np.asarray(jax.devices()), (_ROWS,))


def _gather(number: float) -> np.ndarray:
    """A number of each process."""
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(np.asarray(number, np.float32)))


def _broadcast(tree: Any) -> Any:
    from jax.experimental import multihost_utils

    return multihost_utils.broadcast_one_to_all(tree)


def _check_address(coordinator: str, num_processes: int | None, process_id: int | None) -> None:
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"--coordinator must be ADDRESS:PORT, such as 10.0.0.1:12345; got {coordinator!r}.")
    if num_processes is None or process_id is None:
        raise InputError("--coordinator needs --num-processes and --process-id too.")
    if not 0 <= process_id < num_processes:
        raise InputError(f"--process-id must be from 0 to {num_processes - 1}; got {process_id}.")


def _give_up_after(seconds: float, arrived: threading.Event, message: str) -> None:
    if not arrived.wait(seconds):
        print(message, file=sys.stderr, flush=True)
        os._exit(1)
