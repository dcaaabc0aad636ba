"""Figures, drawn from plain numbers; they need the extra ``plot``."""

from __future__ import annotations

from typing import Any

from mlsysim.fields import TIME, give
from mlsysim.report.wording import percent, readable
from mlsysim.units import parse

__all__ = ["new_axes", "timeline"]

# Okabe and Ito's colours, told apart without colour vision; place, hatch and text say the same once more
_PAUSE, _DRAIN, _OVERRUN = "#0072B2", "#E69F00", "#D55E00"
_PAUSE_LANE, _DRAIN_LANE = 1.0, 0.0
_HALF = 0.2
# below this share of the interval a save is drawn once more, enlarged
_TOO_SMALL = 0.1


def new_axes(**size: Any) -> Any:
    """Axes of a new figure, shown by a notebook; says how to install matplotlib where it is missing."""
    try:
        from matplotlib import pyplot as plt
    except ImportError:
        raise ImportError("figures need matplotlib: pip install 'mlsysim[plot]'") from None
    return plt.subplots(layout="constrained", **size)[1]


def timeline(*, pause: float, drain: float, interval: float, limit: str, axes: Any = None) -> Any:
    """One save interval to scale: the pause, the drain, the next save; an overrun shows.

    The drain overruns where it still runs when the next one is due: one interval after it began.

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
    axes = axes if axes is not None else new_axes(figsize=(8, 2.4))
    scale, unit = _scale(interval)
    end = max(interval + pause, pause + drain) / scale
    words = (
        f"pause {_words(pause)}, {percent(pause / interval)} of the interval",
        f"drain {_words(drain)}, {percent(drain / interval)} of the interval, limited by {limit}",
    )
    small = pause + drain < _TOO_SMALL * interval
    _bars(axes, pause / scale, drain / scale, interval / scale, end)
    if small:
        _enlarged(axes, pause, drain, interval, words)
    else:
        _labels(axes, pause / scale, words, end)
        _overruns(axes, pause, drain, interval, scale)
    _next_save(axes, interval / scale, end)
    _dress(axes, end, f"time since the save began ({unit}); a save every {_words(interval)}")
    return axes


def _words(seconds: float) -> str:
    return readable(give(seconds, TIME))


def _scale(seconds: float) -> tuple[float, str]:
    """A unit that suits a time, and how many seconds it is."""
    unit = _words(seconds).split()[-1]
    return float(parse(f"1 {unit}").base), unit


def _bars(axes: Any, pause: float, drain: float, interval: float, end: float) -> None:
    """The pause and the drain of this save, what overruns hatched, and the pause of the next save."""
    lanes = ((_PAUSE_LANE, 0.0, pause, _PAUSE), (_DRAIN_LANE, pause, drain, _DRAIN))
    for lane, start, length, colour in lanes:
        within = min(length, interval)
        # a bar too short to see becomes a sliver; its label gives the number
        axes.barh([lane], [max(within, end / 250)], left=[start], height=2 * _HALF, color=colour)
        if length > within:
            axes.barh([lane], [length - within], left=[start + within], height=2 * _HALF, color=_OVERRUN, hatch="///", edgecolor="white")
    if pause < interval < end:
        axes.barh([_PAUSE_LANE], [max(min(pause, end - interval), end / 250)], left=[interval], height=2 * _HALF, color=_PAUSE, alpha=0.5)


def _labels(axes: Any, pause: float, words: tuple[str, str], end: float) -> None:
    for lane, start, text in ((_PAUSE_LANE, 0.0, words[0]), (_DRAIN_LANE, pause, words[1])):
        # a label that would leave the figure ends at its edge instead
        right = start > 0.4 * end
        place = {"ha": "right" if right else "left", "va": "bottom"}
        axes.text(end if right else start + 0.006 * end, lane + _HALF + 0.08, text, fontsize=9, bbox=_legible(axes), **place)


def _overruns(axes: Any, pause: float, drain: float, interval: float, scale: float) -> None:
    for lane, start, length in ((_PAUSE_LANE, 0.0, pause), (_DRAIN_LANE, pause, drain)):
        if length > interval:
            text = f"overruns by {_words(length - interval)}"
            place = {"ha": "right", "va": "top"}
            axes.text((start + length) / scale, lane - _HALF - 0.08, text, fontsize=9, weight="bold", bbox=_legible(axes), **place)


def _legible(axes: Any) -> dict[str, Any]:
    """A ground for text, so that no line strikes it through."""
    return {"facecolor": axes.get_facecolor(), "edgecolor": "none", "pad": 1}


def _enlarged(axes: Any, pause: float, drain: float, interval: float, words: tuple[str, str]) -> None:
    """The save once more, in the room that it leaves free."""
    scale, unit = _scale(pause + drain)
    inner = axes.inset_axes([0.2, 0.24, 0.66, 0.64])
    end = (pause + drain) / scale
    _bars(inner, pause / scale, drain / scale, interval / scale, end)
    _labels(inner, pause / scale, words, end)
    _dress(inner, end, "")
    inner.tick_params(labelsize=8)
    inner.set(yticks=[], facecolor="none")
    inner.set_xlabel(f"the same save, enlarged {_times(interval / (pause + drain))} ({unit})", fontsize=8, labelpad=1)


def _times(factor: float) -> str:
    return f"about {float(f'{factor:.1g}'):,.0f} times"


def _next_save(axes: Any, interval: float, end: float) -> None:
    axes.axvline(interval, color="black", linewidth=0.8, linestyle=":")
    right = interval > 0.8 * end
    axes.annotate(
        "next save", (interval, 1.85), ha="right" if right else "left", va="top", fontsize=9,
        xytext=(-4 if right else 4, 0), textcoords="offset points",
    )  # fmt: skip


def _dress(axes: Any, end: float, label: str) -> None:
    axes.set(yticks=[_PAUSE_LANE, _DRAIN_LANE], yticklabels=["training pauses", "drain"], xlim=(0, end * 1.01), ylim=(-0.6, 1.9))
    axes.set_xlabel(label)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)
