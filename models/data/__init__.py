"""Data sets: `av.load`, `av.datasets`, and where they come from.

In: a name, a file or a table. Out: a `Dataset` with names, splits, source and licence. Open
`datasets.py` first; `files.py` reads `.npz` and `.csv`, `download.py` fetches what has a checksum,
`simulators.py` draws the papers' artificial data.
"""
