"""The check of a release: `make dist`."""
