"""Side-by-side benchmarks: this project and Java's official client, on one broker, in one run. `python -m bench`."""
