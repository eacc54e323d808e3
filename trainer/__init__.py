"""A reference RLVR trainer: groups, verifiable rewards, importance weights bounded per sign of the advantage."""
