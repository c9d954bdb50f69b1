"""ROW_NUMBER() and its relatives."""
