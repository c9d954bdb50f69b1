"""Reading queues ahead: several pulls in flight for each, and waiting for any of them."""
