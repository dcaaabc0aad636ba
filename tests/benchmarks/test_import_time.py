"""(a) What ``import mlsysim`` costs beyond the libraries that it stands on."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

_ROUNDS = 15
_TIMED = """
import sys, time
start = time.thread_time()
import {modules}
print(time.thread_time() - start)
print(*sorted({{name.partition(".")[0] for name in sys.modules}} - set(sys.stdlib_module_names)))
"""


def _imported(modules: str, folder: Path) -> tuple[float, set[str]]:
    """Seconds of the processor that an import takes in a fresh process, and the packages that it loads."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
    command = [sys.executable, "-X", f"pycache_prefix={folder / 'pycache'}", "-c", _TIMED.format(modules=modules)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=environment)
    time, names = done.stdout.splitlines()
    return float(time), set(names.split())


@pytest.mark.slow
def test_import(tmp_path: Path, report_ratio: Callable[..., None]) -> None:
    """Importing mlsysim loads no package beyond those that numpy, attrs and pint load."""
    bare, ours = "numpy, attrs, pint", "mlsysim"
    loaded = {modules: _imported(modules, tmp_path)[1] for modules in (bare, ours)}
    times: dict[str, list[float]] = {bare: [], ours: []}
    for _ in range(_ROUNDS):
        for modules, found in times.items():
            found.append(_imported(modules, tmp_path)[0])
    report_ratio(
        "import mlsysim : import numpy, attrs, pint", ours=min(times[ours]) * 1e3, bare=min(times[bare]) * 1e3, unit="ms", aim=1.15
    )
    report_ratio("the same, medians", ours=median(times[ours]) * 1e3, bare=median(times[bare]) * 1e3, unit="ms", aim=1.15)
    assert loaded[bare] | {"mlsysim"} == loaded[ours]
