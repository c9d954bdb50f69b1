"""Planted faults: each must be seen by a test of the gate. `python3 -m tests.mutants` plants them one by one."""
