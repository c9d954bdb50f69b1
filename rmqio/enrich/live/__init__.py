"""Tables of topics: rows in files, and those that came since in memory."""
