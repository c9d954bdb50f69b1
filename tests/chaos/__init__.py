"""A cluster under random faults, and a ledger of what came of each message: `python -m tests.chaos --minutes 10`."""
