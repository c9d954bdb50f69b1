"""The sources of a table's rows: files, databases, Arrow and topics."""
