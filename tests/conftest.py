"""For all tests: garbage is looked for seldom, and never among what has been imported by now.

Graphs are many and refer to themselves: by the thresholds of Python a tenth of the time went there.
"""

import gc


def pytest_collection_finish():
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
