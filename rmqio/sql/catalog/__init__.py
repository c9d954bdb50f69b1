"""Tables: their columns, metadata and options."""
