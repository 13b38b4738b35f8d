"""The Flower engine: calls travel as Flower messages, in its simulation or between a SuperLink and SuperNodes.

Nothing is imported here: a node that only says who it is (identity.py) should not have to load PyTorch.
"""
