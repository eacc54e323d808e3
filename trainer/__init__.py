"""A reference RLVR trainer on torch and transformers: groups, verifiable rewards, importance weights bounded per sign of the advantage."""
