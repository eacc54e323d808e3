"""Our detectors beside others, on the same runs."""
