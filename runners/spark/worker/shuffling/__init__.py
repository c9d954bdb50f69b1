"""The shuffle: elements become rows in the form that their reader needs, and sorted rows become groups."""
