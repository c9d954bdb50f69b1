"""The cost of operating: audits, traces, and the measuring and salting of skewed keys."""
