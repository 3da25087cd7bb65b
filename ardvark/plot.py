"""Figures: `av.plot`. Each takes a tree or a table and gives matplotlib axes.

| figure | of |
|---|---|
| `relevance` | the relevance of inputs by each method |
| `inclusion` | inclusion probabilities, chain by chain |
| `path`, `selection` | the steps of an ARD search, of `av.select_features` |
| `optima` | the optima of an evidence as a density |
| `loo` | leave-one-out by row |
| `hyperparameters` | p(θ | t) with its nodes, its draws or its point |
"""

from ardvark.diagnostics.compare.loo import plot_loo as loo
from ardvark.diagnostics.plots.hyperparameters import plot_hyperparameters as hyperparameters
from ardvark.diagnostics.plots.optima import plot_optima as optima
from ardvark.diagnostics.plots.path import plot_path as path
from ardvark.diagnostics.plots.relevance import plot_relevance as relevance
from ardvark.diagnostics.plots.selection import plot_selection as selection
from ardvark.diagnostics.relevance.subset_checks import plot_inclusion as inclusion

__all__ = ["hyperparameters", "inclusion", "loo", "optima", "path", "relevance", "selection"]
