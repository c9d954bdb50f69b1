"""Lines of logs: grok patterns, syslog and CEF. They are read, and not written."""
