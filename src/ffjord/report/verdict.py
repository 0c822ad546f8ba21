"""What a check says: a grade, the number behind it, the limit it was held against, and what that means."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

Grade = Literal["pass", "warn", "FAIL", "not conclusive", "skipped"]
"""How a check came out: only FAIL says that a number must not be trusted."""


@dataclass(frozen=True)
class Verdict:
    """One line of the page."""

    name: str
    grade: Grade
    found: str
    """The number, as it is shown."""
    limit: str
    meaning: str
    """One sentence."""
    values: dict[str, float | int] = field(default_factory=dict)
    """The numbers themselves."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, which has no NaN and no infinity: they are null."""
        values = {name: value if math.isfinite(value) else None for name, value in self.values.items()}
        return {**vars(self), "values": values}


def skipped(name: str, reason: str) -> Verdict:
    """The verdict of a check that does not apply."""
    return Verdict(name, "skipped", "–", "–", reason)


def worst(verdicts: list[Verdict]) -> Grade:
    """FAIL if any check failed, else warn if any warns, else pass if all that apply passed."""
    grades = {verdict.grade for verdict in verdicts}
    if "FAIL" in grades:
        return "FAIL"
    if "warn" in grades:
        return "warn"
    return "not conclusive" if "not conclusive" in grades else "pass"
