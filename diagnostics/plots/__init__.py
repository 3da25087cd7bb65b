"""Figures: tables or trees in, matplotlib axes out.

Open `relevance.py` for a public one; `report.py` and `calibration.py` draw for the report.
"""
