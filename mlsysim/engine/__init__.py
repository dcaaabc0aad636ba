"""Situations, by name or from a file, that ask a solver."""
