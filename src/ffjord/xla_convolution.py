"""A convolution whose gradients are quick inside of loops.

On CPUs, XLA hands a convolution to a library that computes it as fast as the machine can, but not the gradients of one
that is in a loop: there it writes loops of its own, up to 35 times slower (seen with JAX 0.10, kernels of 3 × 3 and 64
channels). Solver and training are loops. So this module tells JAX how to differentiate a convolution in other words:
the gradient by the image as a convolution again, that by the kernel as a product of matrices. Convolutions are
bilinear, so that these two rules are all there is to any derivative, forward or reverse, first or second. Images that
are smaller than the kernel are the other case that XLA has no library for.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

_PLACES = 1024
"""At most as many places are looked at together in a kernel's gradient, so that their windows stay in the cache."""


def convolution(
    x: Float[Array, "n h w c"], kernel: Float[Array, "size size c out"], pad: int
) -> Float[Array, "n h2 w2 out"]:
    """y[i, j] = Σ_ab K[a, b] x[i + a - pad, j + b - pad], with `pad` rows and columns of zeros around the image."""
    return convolution_primitive.bind(x, kernel, pad=pad)


convolution_primitive = Primitive("convolution_of_images")


def _by_xla(x: Array, kernel: Array, *, pad: int) -> Array:
    """Where the kernel is larger than the image, XLA writes loops of its own, and a product is ten times as quick.

    It takes zeros that somebody has put around an image as a part of the convolution, too.
    """
    within, across = min(x.shape[1:3]), min(x.shape[1:3]) + 2 * pad - len(kernel) + 1
    if within < len(kernel) or (pad == 0 and across <= len(kernel)):
        return _by_products(x, kernel, pad=pad)
    names = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), ((pad, pad), (pad, pad)), dimension_numbers=names)


def _by_products(x: Array, kernel: Array, *, pad: int) -> Array:
    size, _, _, out = kernel.shape
    return _windows(x, size, pad) @ kernel.reshape(-1, out)


def _to_image(grad: Array, x: Any, kernel: Array, *, pad: int) -> Array:
    return convolution(grad, jnp.flip(kernel, (0, 1)).swapaxes(2, 3), len(kernel) - 1 - pad)


def _to_kernel(grad: Array, x: Array, kernel: Any, *, pad: int) -> Array:
    """Σ_i x[i + a - pad] grad[i] for every a, a few images at a time."""
    shape = kernel.aval.shape
    count = next(k for k in range(max(1, _PLACES // x[0, ..., 0].size), 0, -1) if len(x) % k == 0)
    if count == len(x):
        return _of_few(x, grad, shape, pad)
    grouped = lambda y: y.reshape(-1, count, *y.shape[1:])
    add = lambda total, group: (total + _of_few(group[0], group[1], shape, pad), None)
    return jax.lax.scan(add, jnp.zeros(shape, grad.dtype), (grouped(x), grouped(grad)))[0]


def _of_few(x: Array, grad: Array, shape: tuple[int, ...], pad: int) -> Array:
    """The same of all images at once: the windows of whichever has fewer channels, times the other."""
    size, _, channels, out = shape
    flat = lambda y: y.reshape(-1, y.shape[-1])
    if channels < out:
        return (flat(_windows(x, size, pad)).T @ flat(grad)).reshape(shape)
    product = (flat(x).T @ flat(_windows(grad, size, size - 1 - pad))).reshape(channels, size, size, out)
    return jnp.flip(product, (1, 2)).transpose(1, 2, 0, 3)


def _windows(x: Array, size: int, pad: int) -> Array:
    """At every place, the pixels of the window of that size which begins there, one after another."""
    x = jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    h, w = x.shape[1] - size + 1, x.shape[2] - size + 1
    return jnp.concatenate([x[:, i : i + h, j : j + w] for i in range(size) for j in range(size)], axis=-1)


def _batched(args: tuple[Array, Array], axes: tuple[Any, Any], *, pad: int) -> tuple[Array, int]:
    (x, kernel), (of_x, of_kernel) = args, axes
    if of_kernel is None:  # more images
        x = jnp.moveaxis(x, of_x, 0)
        y = convolution(x.reshape(-1, *x.shape[2:]), kernel, pad)
        return y.reshape(*x.shape[:2], *y.shape[1:]), 0
    return jax.vmap(partial(_by_products, pad=pad), axes)(x, kernel), 0  # images with kernels of their own


def _shape(x: Any, kernel: Any, *, pad: int) -> ShapedArray:
    h, w = (side + 2 * pad - kernel.shape[0] + 1 for side in x.shape[1:3])
    return ShapedArray((x.shape[0], h, w, kernel.shape[-1]), x.dtype)


convolution_primitive.def_impl(partial(jax.jit, static_argnames="pad")(_by_xla))
convolution_primitive.def_abstract_eval(_shape)
mlir.register_lowering(convolution_primitive, mlir.lower_fun(_by_xla, multiple_results=False))
ad.defbilinear(convolution_primitive, _to_image, _to_kernel)
batching.primitive_batchers[convolution_primitive] = _batched
