"""One self-contained HTML page that holds several answers against a reference.

In: trees, and perhaps model and data. Out: a page and its numbers as JSON. Open `report.py` first;
`case.py` computes every number once, `parts/` has a file per section, `page.py` renders them by
`templates/`.
"""
