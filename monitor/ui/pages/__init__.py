"""The pages: each module has `render()`, called by main.py with the chosen run in the session."""
