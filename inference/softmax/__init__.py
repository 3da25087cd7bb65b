"""The family "softmax": more than two classes.

In: an `rvm_classification` model with K > 2. Out: a multinomial Laplace, or one sparse machine per
class. Open `run.py` first (the tree), then `laplace.py` and `model.py`; `hyper.py` settles θ,
`reading.py` reads.
"""
