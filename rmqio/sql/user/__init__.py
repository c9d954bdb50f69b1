"""Functions of the user's own: Python that CREATE FUNCTION names, its types by hints, and the way to it in a worker."""
