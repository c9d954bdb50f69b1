"""INSERT INTO: columns, and which kinds of rows a table takes."""
