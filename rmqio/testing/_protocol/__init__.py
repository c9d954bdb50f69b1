"""What `FakeBroker` says on its ports: frames, answers, stored messages."""
