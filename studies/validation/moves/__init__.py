"""Markov kernels one by one: what is moved, its data, the move, and what is looked at.

In: the name of a fault, or None. Out: a `Kernel` for the two tests of `joint.py`: open that first.
`kernel_cases.py` has the table of those in machine code, `step_cases.py` of those on a graph.
"""
