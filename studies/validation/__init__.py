"""Validation: what was tried to break this library, and what came of it.

    python -m ardvark.studies.validation                    every lane, hours; can be killed
    python -m ardvark.studies.validation --quick            a part of each, ten minutes or so
    python -m ardvark.studies.validation --lane kernels     one lane

A lane is a list of experiments (`studies/experiments.py`): units of work that are kept as they are
done, by any executor. Its summary is a JSON file of `studies/results/validation/`, with the commit,
date, versions, seeds, counts and CPU seconds; `docs/validation/` shows these files.

    cases.py        the pairs of model and method, with their hyperparameters, that are calibrated
    calibration.py  simulation-based calibration of each, and the record that is shipped
    kernels.py      each Markov kernel against the joint distribution; moves/ has the two tests and
                    the kernels, right and with faults
    references.py   reference posteriors by posteriordb's rule
    certificate.py  whether an approximation knows how far off it is
    sbc_conditional_mixture.py  calibration of the mixture under P(t | x), by its own arrays
    tiny_mixtures.py            its subsets where they can be had without a chain
    lane.py         what lanes have in common; __main__.py runs them
"""
