"""Sockets: the bytes under a connection, TLS, requests matched with their answers, and connections by address."""
