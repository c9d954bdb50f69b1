"""GROUP BY and windows in workers."""
