"""The pages: each has `render()`, called by main.py with the chosen run in the session.

Not named `pages`: Streamlit runs the files of such a folder beside the script bare, as pages of its own.
"""
