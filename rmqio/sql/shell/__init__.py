"""The shell: statements on a terminal, one after the other."""
