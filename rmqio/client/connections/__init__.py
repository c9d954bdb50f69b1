"""Sockets: the byte stream under a connection, TLS, matching answers to requests, and connections by address."""
