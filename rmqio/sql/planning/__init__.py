"""The logical plan: relations, and what makes a better plan of one."""
