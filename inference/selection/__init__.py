"""Feature selection: rank the inputs, walk along the ranking, score each subset by a learner.

In: inputs, a target and a rule. Out: the subsets tried, their scores and the one chosen. Open
`run.py` first (`av.select_features`), then `walk.py`; `svm.py` on `smo.py` and `learners.py`
judge.
"""
