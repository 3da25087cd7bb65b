"""One self-contained HTML page that compares several answers with a reference.

In: trees, and perhaps model and data. Out: a page and its numbers as JSON. Open `report.py` first;
`case.py` computes every number once, `parts/` has a file per section, `page.py` renders them by
`templates/`; `interactive/` is the page beside it, `first_verdict.py` what is said before a report.
"""
