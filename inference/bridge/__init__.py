"""Bridge sampling: the evidence of any graph from the draws of a sampler.

In: a model and its tree. Out: log evidence with an error. Open `bridge.py` first (arrays, the
iteration); `target.py` has the densities, `run.py` the public function.
"""
