"""The shuffle: turns elements into rows in the form that their reader needs, and sorted rows into groups."""
