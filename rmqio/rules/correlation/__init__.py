"""Correlation: several matches of one group within a span of event time make one more match."""
