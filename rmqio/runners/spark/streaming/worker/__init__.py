"""Running a level in a worker: its stages over the rows of a bucket, with watermarks and state."""
