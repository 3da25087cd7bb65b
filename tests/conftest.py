"""For all tests: what has been imported by now is no garbage, and is not looked at again."""

import gc


def pytest_collection_finish():
    gc.collect()
    gc.freeze()
