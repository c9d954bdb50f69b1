"""The report of an audit: as text, as JSON, and as a page of HTML."""
