"""Elements that fail: the outputs for them, and the dead letters created from them."""
