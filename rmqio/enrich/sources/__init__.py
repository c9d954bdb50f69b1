"""Where the rows of a table come from: files, databases, Arrow and topics."""
