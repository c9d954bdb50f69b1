"""Tables in files that are mapped: their format, building them, and looking up. It knows neither sources nor Beam."""
