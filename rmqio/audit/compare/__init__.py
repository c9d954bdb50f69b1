"""Compares the messages of two topics by 8-byte hashes of their identities, on disk where there are many."""
