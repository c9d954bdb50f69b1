"""From rules to a plan: reduced conditions over numbered atoms, the atoms that trigger a rule, and its check."""
