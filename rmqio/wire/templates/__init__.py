"""Requests that differ in few fields as frames that are encoded once, with holes for these."""
