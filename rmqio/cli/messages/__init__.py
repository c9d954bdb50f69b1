"""Messages: showing and sending them."""
