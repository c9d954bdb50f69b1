"""The command line: `rmqio.cli.main` runs it. Nothing here is imported by the rest, and help needs no client."""
