"""Numbers, times and lists as a page writes them, and as JSON holds them."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

__all__ = [
    *("count", "duration", "listed", "mean_and_sd", "number", "plain", "records"),
    *("as_sentences", "visible"),
]


# All that steers instead of being shown, but for the ends of lines and tabs.
STEERING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Write control characters as JSON does, so that names cannot steer a page or a terminal."""
    return STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def as_sentences(lead: str, said: Iterable[Any]) -> dict[str, Any]:
    """Sentences of a part: one after the other for JSON, the first and a list for the page."""
    rest = [str(sentence) for sentence in said]
    return {"sentence": " ".join([lead, *rest]).strip(), "lead": lead, "said": rest}


def number(value: Any, digits: int = 3) -> str:
    """Write a number with so many significant digits; text stays text."""
    if value is None or not isinstance(value, float | np.floating):
        return "—" if value is None else str(value)
    if not math.isfinite(value):
        return "—" if math.isnan(value) else "∞" if value > 0 else "−∞"
    size = abs(float(f"{value:.{digits - 1}e}"))  # rounded first: 0.9996 is 1.00, not 1.000
    if size and not 1e-4 <= size < 1e5:
        return f"{value:.{digits - 1}e}".replace("-", "−")
    decimals = max(0, digits - 1 - math.floor(math.log10(size))) if size else 0
    return f"{value:.{decimals}f}".replace("-", "−")


def mean_and_sd(mean: float, sd: float) -> str:
    """Write mean ± sd with as many decimals as two digits of the sd need."""
    spread = number(float(sd), 2)
    decimals = len(spread.partition(".")[2])
    return (
        f"{mean:.{decimals}f} ± {spread}".replace("-", "−")
        if sd < 1e4
        else f"{mean:.3g} ± {sd:.2g}"
    )


def duration(seconds: float) -> str:
    """Write a time in seconds or minutes."""
    if math.isnan(seconds):
        return "—"
    return f"{number(float(seconds), 2)} s" if seconds < 100 else f"{seconds / 60:.1f} min"


def listed(names: Any, limit: int = 5) -> str:
    """List a few names."""
    names = [str(name) for name in names]
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return (", ".join(names[:limit]) + more) or "none"


def count(n: int, noun: str) -> str:
    """Count things: no check, 1 check, 2 checks."""
    return f"{n or 'no'} {noun}{'' if n == 1 else 's'}"


def plain(value: Any) -> Any:
    """Turn into what JSON can hold: NaN becomes null, infinities words."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value if isinstance(value, str | int | float | None) else str(value)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a table as dictionaries, the index among them."""
    return frame.reset_index().to_dict("records")  # type: ignore[return-value]
