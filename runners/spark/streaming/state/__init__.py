"""What a bucket keeps between micro-batches: windows, keys, user state, timers, side inputs, residuals."""
