"""The state that a bucket keeps between micro-batches: windows, keys, user state, timers, side inputs, residuals."""
