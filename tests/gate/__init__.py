"""The gate: what must pass before a change lands. `make test` runs it, `tests/README.md` says what is in it."""
