"""`rmqio find` and `rmqio trace`: one message, with all that is known of it, and what came of it."""
