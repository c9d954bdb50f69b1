"""Offsets of many queues: queried and committed together under one deadline; silent brokers are skipped."""
