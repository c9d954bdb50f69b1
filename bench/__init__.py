"""Side-by-side benchmarks, in one run, by subject; `python -m bench` is our client and Java's own, on one broker."""

import os

# Images of containers often set it. Programs that run from a clone would then compile each module at each start; those
# of an installed package never do.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
