"""Scripts: their statements, texts and settings."""
