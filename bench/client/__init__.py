"""Our client and its transforms beside Java's own client: the cases of `python -m bench`, and its parts alone."""
