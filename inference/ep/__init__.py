"""Expectation propagation: sites whose moments match the tilted ones.

In: a `SiteModel`. Out: a `GaussianFit` with evidence, its gradient, and leave-one-out by cavities.
Open `ep.py` first; `sequential.py` has the machine code of the probit, `parallel.py` the updates
by quadrature, `correction.py` what the evidence leaves out to second order.
"""
