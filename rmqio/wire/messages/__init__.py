"""Messages: batches that are sent, stored ones that are pulled, and their bodies."""
