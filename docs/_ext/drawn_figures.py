"""The figures of the pages, drawn from the named cases at build time, so that they never tell an old answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

CASES = ("Gpt3TieredCheckpoint2K", "MtNlgTieredCheckpoint20Gb")


def draw(app: Sphinx) -> None:
    """One timeline for each case."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    from mlsysim import Scenarios

    folder = Path(app.srcdir) / "reference" / "generated"
    folder.mkdir(parents=True, exist_ok=True)
    # without a date and with fixed ids the file is the same each time, so that nothing is built again for it
    with mpl.rc_context({"svg.hashsalt": "mlsysim"}):
        for name in CASES:
            figure = getattr(Scenarios, name).result.timeline().figure
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
            plt.close(figure)


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx's entry point."""
    app.connect("builder-inited", draw)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
