"""Signatures for the API reference, by extensions of griffe, which reads the sources without importing them."""

import dataclasses
from typing import Any

import griffe

_ROOTS = {"equinox.Module", "typing.NamedTuple"}
_HOW = griffe.ParameterKind.positional_or_keyword


class FieldsAreArguments(griffe.Extension):
    """An Equinox module or a named tuple without an `__init__` gets the one that it has when the program runs."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        for class_ in _classes(pkg):
            family = [*reversed(class_.mro()), class_]
            if "__init__" in class_.all_members or not any(_is_rooted(one) for one in family):
                continue
            fields = {field.name: field for one in family for field in _fields(one)}
            parameters = griffe.Parameters(griffe.Parameter("self", kind=_HOW), *map(_parameter, fields.values()))
            class_.set_member("__init__", griffe.Function("__init__", parameters=parameters, parent=class_))


class ShapesAreText(griffe.Extension):
    """The shape in `Float[Array, "n *event"]` is text, and not the product of n and event."""

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        for annotation in (func.returns, *(parameter.annotation for parameter in func.parameters)):
            _quote_shapes(annotation)

    def on_attribute(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        _quote_shapes(attr.annotation)


def _quote_shapes(part: Any) -> None:
    if isinstance(part, list | tuple):
        for one in part:
            _quote_shapes(one)
    if not isinstance(part, griffe.Expr):
        return
    if isinstance(part, griffe.ExprSubscript) and isinstance(part.slice, griffe.ExprTuple):
        shape = part.slice.elements[-1]
        if part.canonical_path.startswith("jaxtyping.") and isinstance(shape, griffe.Expr):
            part.slice.elements[-1] = f'"{str(shape).replace(" * ", " *")}"'
    for field in dataclasses.fields(part):
        if field.name != "parent":
            _quote_shapes(getattr(part, field.name))


def _classes(part: griffe.Object) -> list[griffe.Class]:
    inside = [one for member in part.members.values() if not member.is_alias for one in _classes(member)]
    return [part, *inside] if isinstance(part, griffe.Class) else inside


def _is_rooted(class_: griffe.Class) -> bool:
    return any(getattr(base, "canonical_path", base) in _ROOTS for base in class_.bases)


def _fields(class_: griffe.Class) -> list[griffe.Attribute]:
    """Annotated attributes; what is written as a ClassVar belongs to the class alone."""
    found = [member for member in class_.members.values() if not member.is_alias and member.is_attribute]
    of_class = lambda field: "class-attribute" in field.labels and "instance-attribute" not in field.labels
    return [f for f in found if f.annotation is not None and "property" not in f.labels and not of_class(f)]


def _parameter(field: griffe.Attribute) -> griffe.Parameter:
    default = field.value
    if isinstance(default, griffe.ExprCall) and default.canonical_path == "equinox.field":
        default = next((word.value for word in default.arguments if getattr(word, "name", "") == "default"), None)
    return griffe.Parameter(field.name, annotation=field.annotation, kind=_HOW, default=default)
