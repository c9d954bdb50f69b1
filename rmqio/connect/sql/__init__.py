"""SQL databases, by SQLAlchemy."""
