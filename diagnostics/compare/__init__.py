"""Answers against references: agreement, evidence, leave-one-out, and a verdict.

In: trees by name. Out: tables. Open `compare.py` first (`av.compare`), then `relations.py`: which
reference an answer is compared with. `agreement.py` has the formulas, `verdict.py` says what they
mean, `reference.py` what a reference is; `evidence.py`, `loo.py` and `taddaa.py` are other tables.
"""
