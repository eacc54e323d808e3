"""One file per signature: what it looks for, and which bound it proposes."""
