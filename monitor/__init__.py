"""Recording, store, control channel and dashboard. Importing it needs the standard library alone."""
