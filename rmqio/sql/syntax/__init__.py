"""SQL as text: the grammar, the syntax tree, and the parser."""
