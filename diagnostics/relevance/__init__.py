"""Which inputs matter: relevance, inclusion, subsets, and how sure one can be of them.

In: one tree or several by name. Out: tables by input. Open `relevance.py` first, then `compare.py`
and `subsets.py`.
"""
