"""Requests of administration: the configurations of topics, and tables of consumer groups."""
