"""Verdicts on answers: where the answer stands, how it may be written, and whether it is right. Begin with
`verifier.py`."""
