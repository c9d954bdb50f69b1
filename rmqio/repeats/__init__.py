"""Work that may be a repeat: what a runner knows of it, and how a writer finds out what it has already sent."""
