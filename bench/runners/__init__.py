"""The three pipelines on all runners."""
