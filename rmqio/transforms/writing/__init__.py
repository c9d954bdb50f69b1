"""How elements become messages: their topics and ids, the DoFn that sends them, and the exact sink."""
