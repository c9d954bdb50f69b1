"""Regular expressions that rows are matched with: they take a bounded time."""
