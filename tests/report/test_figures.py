"""The figure of one save interval."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from mlsysim import Q_, InputError, Scenarios, TieredCheckpointModel

matplotlib = pytest.importorskip("matplotlib")


@pytest.fixture(autouse=True)
def _no_window() -> Iterator[None]:
    matplotlib.use("Agg")
    yield
    from matplotlib import pyplot as plt

    plt.close("all")


def texts(axes: Any) -> str:
    """All words of a figure, in one line."""
    axes.figure.canvas.draw()
    found = [each.get_text() for part in axes.figure.findobj(matplotlib.text.Text) for each in [part] if each.get_visible()]
    return " | ".join(found)


@pytest.mark.parametrize("name", list(Scenarios))
def test_every_case_can_be_drawn(name: str) -> None:
    """The pause, the drain and the next save are told in words."""
    words = texts(getattr(Scenarios, name).result.timeline())
    for part in ("pause ", "drain ", "next save", "of the interval"):
        assert part in words, part


def test_bars_are_to_scale() -> None:
    """A pause of 1 min and a drain of 4 min in an interval of 10 min have bars of one and four tenths of it."""
    result = TieredCheckpointModel().solve(
        checkpoint_bytes=Q_("240 GB"), nodes=1, local_bandwidth=Q_("4 GB/s"), durable_bandwidth=Q_("1 GB/s"), save_interval=Q_("10 min")
    )
    bars = [bar.get_bbox() for bar in result.timeline().patches]
    assert [(0.0, 1.0), (1.0, 4.0), (10.0, 1.0)] == [(pytest.approx(bar.x0), pytest.approx(bar.width)) for bar in bars]


def test_an_overrun_shows() -> None:
    """Where the drain overruns, its rest is hatched and told."""
    axes = Scenarios.MtNlgTieredCheckpoint20Gb.result.timeline()
    hatched = [bar.get_bbox() for bar in axes.patches if bar.get_hatch()]
    assert ([pytest.approx(12.4)], True) == ([bar.width for bar in hatched], "overruns by 12.4 min" in texts(axes))


def test_no_overrun_where_the_drain_keeps_up() -> None:
    """Where the drain keeps up, nothing is hatched."""
    axes = Scenarios.Gpt3TieredCheckpoint2K.result.timeline()
    assert ([], False) == ([bar for bar in axes.figure.findobj(matplotlib.patches.Rectangle) if bar.get_hatch()], "overruns" in texts(axes))


def test_own_axes_are_used() -> None:
    """A figure can be drawn where one wants it."""
    from matplotlib import pyplot as plt

    axes = plt.figure().subplots()
    assert axes is Scenarios.Gpt3TieredCheckpoint2K.result.timeline(axes)


def test_arrays_are_refused(plan: dict[str, Any]) -> None:
    """A figure shows one situation."""
    result = TieredCheckpointModel().solve(**(plan | {"save_interval": Q_([1, 2], "min")}))
    with pytest.raises(InputError, match=r"timeline must be drawn for one situation; got .*\(2,\)"):
        result.timeline()


def test_missing_matplotlib_says_how_to_install_it() -> None:
    """Without the extra, the error says what to install."""
    code = "import sys; sys.modules['matplotlib'] = None; import mlsysim; mlsysim.Scenarios.Gpt3TieredCheckpoint2K.result.timeline()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "figures need matplotlib: pip install 'mlsysim[plot]'" in ended.stderr
