"""The family "sample_feature": a kernel machine (Mir17) by VB, Laplace and samplers.

In: a `sample_feature_*` model. Out: factors or draws of the weights of samples and of features.
Open `vb.py` first (the algorithm), `run.py` for the tree; `basis.py` and `moments.py` are its
kernels in factors, `rsfm.py` the type-II alternative, `run_gamma.py` tries widths.
"""
