"""Progress that is shown: a notebook without ipywidgets is told nothing, rather than warned."""

import importlib.util
import warnings

import pytest
from rich import console

from ardvark.inference.running.progress import _status


@pytest.mark.parametrize("widgets", [None, "there"])
def test_a_notebook_without_widgets_hears_no_warning(monkeypatch, widgets):
    """rich warns at each refresh where IPython runs in a kernel and ipywidgets is missing."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: widgets)
    monkeypatch.setattr(console, "_is_jupyter", lambda: True)
    status = _status()
    assert status.console.is_jupyter == (widgets == "there")
    if widgets is None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            status.start()
            status.update("half of it")
            status.stop()
