"""Dimension tables beside LMDB, RocksDB and a dict of Python."""
