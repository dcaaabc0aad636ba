"""``python -m mlsysim``."""

import sys

from mlsysim.cli import main

sys.exit(main())
