"""Tables in files that are mapped: their format, building them, and looking up in them. It knows no source and no Beam."""
