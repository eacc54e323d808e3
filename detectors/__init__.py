"""Streaming detectors: a mapping of metrics in, findings out. Standard library only."""
