"""Trees on disk: arrays and JSON with checksums, written whole or not at all.

In: trees and paths. Out: zarr stores that are verified when read. Open `trees.py` first;
`atomic.py` writes and locks, `processes.py` ends children with their parent.
"""
