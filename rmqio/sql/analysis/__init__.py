"""From syntax to a plan: names become columns, types are checked, and what is not valid is refused."""
