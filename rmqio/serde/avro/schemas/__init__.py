"""Schemas: parsing and inferring them, their parts, and whether one reads the data of another."""
