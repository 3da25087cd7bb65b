"""Calibration by simulation, scores of predictions, and the record that is shipped.

In: a model and a method, or trees and rows. Out: the trees of `av.sbc`, and the tables
`sbc_summary` and `scores`. Open `sbc.py` first; `replication.py` is one replication, `checks.py`
has the tests of uniformity.
"""
