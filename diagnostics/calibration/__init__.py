"""Calibration by simulation, scores of predictions, and the record that is shipped.

In: a model and a method, or trees and rows. Out: `av.sbc`, `av.sbc_summary`, `av.scores`. Open
`sbc.py` first; `replication.py` is one replication, `checks.py` the tests of uniformity.
"""
