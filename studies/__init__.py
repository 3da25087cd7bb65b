"""Studies, each run by `python -m` or `ardvark replicate`.

papers/ has published experiments, each a unit of work and its settings; experiments.py runs units
and keeps what they gave, results/ has summaries of them, ledger.py puts these beside what was
published. speed/ measures; validation/ tries to break the library and makes the calibration
record; workloads.py has data sets that studies and tests share.
"""
