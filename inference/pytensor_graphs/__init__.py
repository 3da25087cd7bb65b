"""Walks over PyTensor graphs: what is affine in what, where it is sparse, graphs made again.

In: nodes of a graph. Out: notes on them, patterns, other nodes. Nothing here knows a model. Open
`affine.py` first.
"""
