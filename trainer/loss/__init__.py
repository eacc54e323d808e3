"""The policy loss of every objective and what is measured about it; `objective.py` is where to begin. Torch alone."""
