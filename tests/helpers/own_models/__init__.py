"""Models as PyMC and bambi users write them, to be fitted with nothing named.

`CASES` has each model by its name (`case.py` says what a case is). The names, priors and ways to
write a sum differ on purpose: so do users. No variable is called `eta`. Data are simulated with a
fixed seed inside each function, 20 to 200 rows, or are small public tables (eight schools, seeds,
posteriordb). Moments by long NUTS are in `tests/references/own_models.json`.

    textbook.py       worked examples: eight schools, radon, rats, seeds, epil, ...
    posteriordb.py    six models with reference draws by Stan
    regression.py     likelihoods and links
    outcomes.py       several outcomes, missing values, potentials, own likelihoods
    hierarchy.py      groups: centred, not centred, crossed, nested, correlated
    processes.py      Gaussian processes, random walks, areas, splines
    priors.py         priors of coefficients that are not Gaussian; horseshoe, R2D2, flat
    refused.py        what is no Gaussian block with scalar sites
    bambi_models.py   families and terms of bambi
"""

from importlib import import_module

from own_models.case import CASES, Case

__all__ = ["CASES", "THEMES", "Case"]

THEMES = (
    "textbook",
    "posteriordb",
    "regression",
    "outcomes",
    "hierarchy",
    "processes",
    "priors",
    "refused",
    "bambi_models",
)
for _theme in THEMES:  # each registers its cases
    import_module(f"own_models.{_theme}")
