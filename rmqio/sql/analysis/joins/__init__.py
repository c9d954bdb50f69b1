"""Items of FROM: joins, dimension tables, and rows that are computed of the row before them."""
