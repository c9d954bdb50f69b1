"""Beam's job server for Flink: the jars, the command, the process, and the servers of this process."""
