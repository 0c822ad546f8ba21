"""The matrix products and convolutions inside of a function, kept so that its gradient need not compute them again."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jax.extend.core import ClosedJaxpr, Jaxpr
from jaxtyping import Array

from ffjord.xla_convolution import convolution_primitive

_OPERATIONS, _NUMBERS = 400, 2**27
"""When products are worth keeping: from how many operations a number, and up to how many numbers. On a CPU room for
them is dear too: at 470 operations a number little is gained (docs/performance.md)."""


_DEAR = (jax.lax.dot_general_p, convolution_primitive)


class Linearised(NamedTuple):
    """A function at a point."""

    value: Any
    aux: Any
    products: list[Array]
    """All matrix products that the gradient needs."""
    pull: Callable[[list[Array], Any], Any]
    """From the products and the value's gradient to the inputs'; of the function, only what is cheap is done again."""


def linearised(function: Callable[..., tuple[Any, Any]], *inputs: Any, others: Any) -> Linearised:
    """`function(*inputs)`, which is a value and something beside it; `others` are the arrays that it refers to.

    Two calls with inputs of the same shapes have products of the same shapes, so that those of one call may be given to
    the other's `pull`: a compiled program then leaves out what would have computed its own.
    """
    kept = jax.checkpoint(function, policy=lambda primitive, *_, **__: primitive in _DEAR)
    value, pullback, aux = jax.vjp(kept, *inputs, has_aux=True)
    leaves, structure = jax.tree.flatten(pullback)
    given = {id(leaf) for leaf in jax.tree.leaves((inputs, others))}
    places = [i for i, leaf in enumerate(leaves) if id(leaf) not in given]

    def pull(products: list[Array], grad: Any) -> Any:
        chosen = dict(zip(places, products, strict=True))
        return jax.tree.unflatten(structure, [chosen.get(i, leaf) for i, leaf in enumerate(leaves)])(grad)

    return Linearised(value, aux, [leaves[i] for i in places], pull)


def are_worth_keeping(function: Callable[..., Any], *inputs: Any, calls: int) -> bool:
    """Whether the matrix products of so many calls of a function are dear enough, and take little enough room."""
    found = list(_products(eqx.filter_make_jaxpr(function)(*inputs)[0].jaxpr))
    numbers = sum(size for size, _ in found)
    operations = sum(2 * size * length for size, length in found)
    return operations >= _OPERATIONS * numbers and 0 < calls * numbers <= _NUMBERS


def _products(jaxpr: Jaxpr) -> Iterator[tuple[int, int]]:
    """The size of each product, and the length of the sums that its numbers are."""
    for equation in jaxpr.eqns:
        if equation.primitive is jax.lax.dot_general_p:
            (summed, _), _ = equation.params["dimension_numbers"]
            shape: Any = equation.invars[0].aval.shape  # pyright: ignore[reportAttributeAccessIssue]
            yield math.prod(equation.outvars[0].aval.shape), math.prod(shape[axis] for axis in summed)  # pyright: ignore[reportAttributeAccessIssue]
        if equation.primitive is convolution_primitive:
            kernel: Any = equation.invars[1].aval.shape  # pyright: ignore[reportAttributeAccessIssue]
            yield math.prod(equation.outvars[0].aval.shape), math.prod(kernel[:-1])  # pyright: ignore[reportAttributeAccessIssue]
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: isinstance(x, ClosedJaxpr)):
            if isinstance(value, ClosedJaxpr | Jaxpr):
                yield from _products(value.jaxpr if isinstance(value, ClosedJaxpr) else value)
