"""The tools of `make docs`."""
