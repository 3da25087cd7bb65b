"""The RBF mixture under P(t | x), which asks what tells the classes apart: arrays only.

In: a `Problem` of labelled rows. Out: chains over subsets and coefficients. Open `chains.py` first,
then `jumps.py` between subsets and `density.py` with its gradient and HMC within one.
"""
