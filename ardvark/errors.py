"""What can go wrong, by name: each message says what was asked, what was found, what to do."""

__all__ = [
    "AccuracyWarning",
    "ConvergenceWarning",
    "InputError",
    "InputWarning",
    "UnreadableModel",
    "UnsupportedPair",
]


class InputError(ValueError):
    """Data or a setting is bad: the message names the argument and the first bad place."""


class UnreadableModel(ValueError):
    """A graph is no Gaussian block with an affine predictor and separable sites."""


class UnsupportedPair(ValueError):
    """A method cannot fit this model: the message has the reason and what to use instead."""


class InputWarning(UserWarning):
    """Legal data that need attention: constant, duplicate or badly scaled columns."""


class ConvergenceWarning(UserWarning):
    """A fit stopped short: the message says by how much."""


class AccuracyWarning(UserWarning):
    """A fit converged where its approximation is known to be poor: the message says what to do."""
