"""``python -m mlsysim``."""

from mlsysim.cli import run

run()
