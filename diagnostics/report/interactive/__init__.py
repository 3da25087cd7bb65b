"""The interactive page beside a report: one HTML file with plotly.js inside, and no network.

In: the `Case` of a report, whose numbers are computed once. Out: a page. Open `page.py` first;
`weights.py` (with `influence.py`), `hyperparameters.py` and `paths.py` give the plain numbers,
which `templates/interactive.js` draws.
"""
