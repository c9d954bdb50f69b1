"""`rmqio copy`: from any of these systems to any other one."""
