"""The remoting protocol without I/O: converts bytes to values and back. No sockets, threads or clock."""
