"""From values to the atoms that they meet: an index for each field."""
