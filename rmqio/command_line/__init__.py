"""The common part of all command lines: parsers and arguments, tables and messages, clients, the contents of queues."""
