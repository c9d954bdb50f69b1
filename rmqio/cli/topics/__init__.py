"""Topics: listing, creating, changing and deleting them."""
