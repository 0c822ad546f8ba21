"""Numbers as a page shows them: with the digits that their errors leave, a true minus sign, and all digits behind."""

import math
from html import escape


def number(value: float | int, shown: str) -> str:
    """A number in words that carries all its digits for programs: <data value="…">."""
    return f'<data value="{value!r}">{escape(minus(shown))}</data>'


def measured(value: float | int, error: float | int | None, unit: str = "") -> str:
    """A value, its standard error to two digits, and its unit: 2.3333 ± 0.0032 nats."""
    unit = f' <span class="unit">{escape(unit)}</span>' if unit else ""
    if error is None or not (math.isfinite(error) and error > 0):
        return number(value, f"{value:.4f}") + unit
    digits = decimals(error)
    return f"{number(value, f'{value:.{digits}f}')} ± {number(error, f'{error:.{digits}f}')}{unit}"


def decimals(error: float | int) -> int:
    """How many decimals show two digits of an error."""
    return max(0, 1 - math.floor(math.log10(float(f"{error:.1e}"))))


def count(value: float | int) -> str:
    """A whole number with its thousands apart."""
    return number(value, f"{value:,.0f}")


def tolerance(value: float | int) -> str:
    """A small number in short: 1e-6."""
    if value == 0 or abs(value) >= 1e-3:
        return f"{value:g}"
    digits, exponent = f"{value:e}".split("e")
    return f"{float(digits):g}e{int(exponent)}"


def minus(text: str) -> str:
    """The text with its first hyphen, if a number begins with it, as a minus sign."""
    return f"−{text[1:]}" if text.startswith("-") else text
