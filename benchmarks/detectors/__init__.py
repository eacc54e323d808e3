"""Detectors on recorded and generated runs."""
