"""Functions of text: its characters, patterns, encodings, URLs and lines of logs."""
