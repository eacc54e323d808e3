"""The lab: the regime study of DISPO (arXiv 2602.00983) on the tiny policy, as `regimescope lab`.

grids.toml   conditions, arms, grids and the paper's claims
plan         the runs of a grid
runs         carries them out, resumable
labels       onset rules of failures, over a whole run
outcomes     what became of a run
claims       the paper's claims against the outcomes
rescue       bounds relaxed after an alert, and rollbacks
report       tables and figures
"""
