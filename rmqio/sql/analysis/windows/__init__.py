"""Windows, EMIT, and functions over the rows before a row."""
