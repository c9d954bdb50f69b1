"""Consumer groups: their lags and members, and their offsets."""
