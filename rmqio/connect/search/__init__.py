"""Elasticsearch and OpenSearch, by the bulk interface that both have."""
