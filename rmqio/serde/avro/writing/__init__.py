"""Elements to what fastavro encodes: the check of the usual ones, and the detailed one."""
