"""The side of `FakeBroker` that speaks on ports: frames, answers, stored messages."""
