"""The sections of a report: a `Case` in, a dictionary of plain numbers and one sentence out."""
