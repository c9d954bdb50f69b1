"""DoFns that make, sort and show rows, and the outputs of a fragment."""
