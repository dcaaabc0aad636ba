"""What a plan does not need is not loaded, and every public name is there when asked for."""

import subprocess
import sys

import pytest

import mlsysim
from mlsysim import specs
from mlsysim.engine import scenario_types

LATER = ("mlsysim.layout", "mlsysim.specs.transformer", "mlsysim.specs.huggingface", "mlsysim.report.card", "mlsysim.engine.text")


def test_a_plan_loads_no_more_than_it_needs() -> None:
    """Importing mlsysim and answering a case loads no reader, no shape of a model and no card."""
    code = "import sys, mlsysim; mlsysim.Scenarios.Gpt3TieredCheckpoint2K.result; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [] == [name for name in LATER if name in loaded]


@pytest.mark.parametrize("package", [mlsysim, specs, scenario_types])
def test_every_public_name_is_there(package: object) -> None:
    """What ``__all__`` lists can be had."""
    assert [] == [name for name in package.__all__ if not hasattr(package, name)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("package", [mlsysim, specs, scenario_types])
def test_an_unknown_name_is_refused(package: object) -> None:
    """A name that is not public is Python's own AttributeError."""
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        package.Nothing  # type: ignore[attr-defined]  # noqa: B018
