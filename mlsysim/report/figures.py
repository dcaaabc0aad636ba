"""Figures, drawn from plain numbers; they need the extra ``plot``."""

from __future__ import annotations

from typing import Any

from mlsysim.fields import TIME, give
from mlsysim.report.wording import readable

__all__ = ["new_axes", "timeline"]

# Okabe and Ito's colours, told apart without colour vision; hatches say the same once more
_PAUSE, _DRAIN, _OVERRUN = "#0072B2", "#E69F00", "#D55E00"


def new_axes(**size: Any) -> Any:
    """Axes of a new figure; says how to install matplotlib where it is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("figures need matplotlib: pip install 'mlsysim[plot]'") from None
    return Figure(layout="constrained", **size).subplots()


def timeline(*, pause: float, drain: float, interval: float, limit: str, axes: Any = None) -> Any:
    """One save interval to scale: the pause, the drain, the next save; an overrun of the drain shows.

    Parameters
    ----------
    pause, drain, interval : float
        In seconds.
    limit : str
        What limits the drain.
    axes : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    axes = axes if axes is not None else new_axes(figsize=(8, 2.6))
    words = {name: readable(give(value, TIME)) for name, value in (("pause", pause), ("drain", drain), ("interval", interval))}
    end = max(interval + pause, pause + drain) * 1.02
    thin = end / 250  # a bar too short to see is drawn as a sliver, and its label gives the number
    axes.barh([1, 1], [max(pause, thin)] * 2, left=[0, interval], height=0.5, color=_PAUSE, label=f"pause, {words['pause']}")
    within = min(drain, max(interval - pause, 0))
    axes.barh([0], [max(within, thin)], left=[pause], height=0.5, color=_DRAIN, label=f"drain, {words['drain']}, limited by {limit}")
    if drain > within:
        axes.barh(
            [0], [drain - within], left=[pause + within], height=0.5, color=_OVERRUN, hatch="///", edgecolor="white",
            label="drain, still running after the next save began",
        )  # fmt: skip
    for start, name in ((0.0, "this save"), (interval, "next save")):
        axes.axvline(start, color="black", linewidth=0.8, linestyle=":")
        axes.annotate(name, (start, 1.45), ha="left", va="bottom", fontsize=9, xytext=(3, 0), textcoords="offset points")
    axes.set(yticks=[1, 0], yticklabels=["training stands still", "drain"], xlim=(-end * 0.01, end), ylim=(-0.5, 1.9))
    unit = words["interval"].split()[-1]
    scale = interval / float(words["interval"].split()[0])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / scale:.3g}")
    axes.set_xlabel(f"time since this save began ({unit}); saves every {words['interval']}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.figure.legend(loc="outside lower center", ncols=1, frameon=False, fontsize=9)
    return axes
