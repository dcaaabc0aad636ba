"""Frozen situations, a file for each family."""
