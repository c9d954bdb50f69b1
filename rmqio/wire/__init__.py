"""The remoting protocol, sans I/O: bytes to values and back. No sockets, threads or clock in here."""
