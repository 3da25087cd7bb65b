"""exp of many numbers at a time: a loop that processors run on several numbers at once.

    e^x = 2^k e^r,    k = x / log 2 rounded,    |r| <= log 2 / 2

The polynomial is Taylor's up to r^12, whose rest is 2e-16 of its value. k is read from the last
bits of x / log 2 + 1.5 2^52, where a number has no digits behind the point. Numbers below LOWEST
count as LOWEST: sums of such terms are 0 beside any other.
"""

import math
from typing import Any

import numpy as np

from ardvark.inference.running.machine_code import njit

__all__ = ["LOWEST", "exponentials"]

LOWEST = -700.0
PER_LOG_2 = 1.0 / math.log(2.0)
LOG_2_HIGH, LOG_2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
WHOLE = 6755399441055744.0  # 1.5 2^52
BIAS, MANTISSA = 1023, 52


@njit(cache=True, nogil=True, error_model="numpy")
def exponentials(x: Any, room: Any) -> None:
    """Replace each x, at most 700, by its exp; `room` is as long as x."""
    bits = room.view(np.int64)
    for n in range(x.shape[0]):
        value = max(x[n], LOWEST)
        shifted = value * PER_LOG_2 + WHOLE
        room[n] = shifted
        k = shifted - WHOLE
        r = (value - k * LOG_2_HIGH) - k * LOG_2_LOW
        y = 1.0 / 479001600
        y = y * r + 1.0 / 39916800
        y = y * r + 1.0 / 3628800
        y = y * r + 1.0 / 362880
        y = y * r + 1.0 / 40320
        y = y * r + 1.0 / 5040
        y = y * r + 1.0 / 720
        y = y * r + 1.0 / 120
        y = y * r + 1.0 / 24
        y = y * r + 1.0 / 6
        y = y * r + 0.5
        y = y * r + 1.0
        x[n] = y * r + 1.0
    for n in range(x.shape[0]):
        bits[n] = (bits[n] << MANTISSA) + (BIAS << MANTISSA)
    for n in range(x.shape[0]):
        x[n] *= room[n]
