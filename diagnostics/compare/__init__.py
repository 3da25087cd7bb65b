"""Answers against references: agreement, evidence, leave-one-out, and a verdict.

In: trees by name. Out: tables. Open `agreement.py` first (`av.compare`), then `verdict.py`;
`reference.py` and `judges.py` say who may judge, `evidence.py`, `loo.py` and `taddaa.py` are
tables of their own.
"""
