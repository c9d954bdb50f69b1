"""OVER in workers, by time and of inputs that end."""
