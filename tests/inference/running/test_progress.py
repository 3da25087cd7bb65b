"""Progress that is shown: a notebook without ipywidgets is told nothing, rather than warned."""

import importlib.util
import sys
import warnings

import pytest
from rich import console

from ardvark.inference.running.progress import _status


@pytest.mark.parametrize("widgets", [None, "there"])
def test_a_notebook_without_widgets_hears_nothing(monkeypatch, capsys, widgets):
    """There rich warns at each refresh, and a kernel's output claims to be a terminal."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: widgets)
    monkeypatch.setattr(console, "_is_jupyter", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    status = _status()
    assert status.console.is_jupyter == (widgets == "there")
    if widgets is None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            status.start()
            status.update("half of it")
            status.stop()
        assert "\x1b" not in capsys.readouterr().err
