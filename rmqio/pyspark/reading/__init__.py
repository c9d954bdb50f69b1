"""Reads of batches and streams: offsets, partitions, filters and columns."""
