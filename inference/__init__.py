"""Inference: arrays ← graph ← tree. A method is one file here and one line in `methods.py`."""
