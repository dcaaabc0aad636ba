"""Reading the ``.metadata`` of a 405B over 64 and 512 ranks, against an unpickler that makes an object of everything.

With torch installed, that is ``pickle.load`` with torch's classes, as torch reads it; without, the same with classes of the same form.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.benchmarks.alternating import PEAK
from tests.layout.torch_files import large_metadata

_OURS = """
from pathlib import Path
from mlsysim.layout import pytorch
from mlsysim.layout.limits import Limits
def read(path):
    return len(pytorch.READER.read(Path(path).parent, Limits()).fragments)
"""
_TORCH = """
import pickle
import torch.distributed.checkpoint.filesystem
def read(path):
    with open(path, "rb") as file:
        found = pickle.load(file)
    return sum(len(getattr(each, "chunks", ())) for each in found.state_dict_metadata.values())
"""
_ALIKE = """
import pickle
class Size(tuple): pass
class Fields:
    def __setstate__(self, state):
        if type(state) is dict: self.__dict__.update(state)
class Index(Fields):
    def __hash__(self): return hash((self.fqn, getattr(self, "offset", None)))
    def __eq__(self, other): return (self.fqn, getattr(self, "offset", None)) == (other.fqn, getattr(other, "offset", None))
    # as a frozen dataclass: what pickle does without a __setstate__
    def __setstate__(self, state): self.__dict__.update(state)
def called(*args): return args
class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if name == "Size": return Size
        if name == "MetadataIndex": return Index
        return called if name in ("_get_layout", "_MEM_FORMAT_ENCODING", "PosixPath") else type(name, (Fields,), {})
def read(path):
    with open(path, "rb") as file:
        found = Unpickler(file).load()
    return sum(len(getattr(each, "chunks", ())) for each in found.state_dict_metadata.values())
"""
_TIMED = """
import sys, time
before = peak()
start = time.perf_counter()
count = read(sys.argv[1])
taken = time.perf_counter() - start
print(count, taken, peak() - before)
"""


def timed(code: str, path: Path) -> tuple[int, float, float]:
    """Chunks, seconds, and bytes that the peak of a fresh process grew by."""
    done = subprocess.run([sys.executable, "-c", PEAK + code + _TIMED, str(path)], capture_output=True, text=True, check=True)
    count, taken, grown = done.stdout.split()
    return int(count), float(taken), float(grown)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="peak memory is read as on Unix")
@pytest.mark.parametrize("ranks", [64, 512])
def test_large_metadata(tmp_path: Path, ranks: int, report_ratio: Callable[..., None]) -> None:
    """Every chunk is read by both."""
    path = tmp_path / ".metadata"
    count = large_metadata(path, ranks)
    kind, code = ("torch", _TORCH) if importlib.util.find_spec("torch") else ("classes alike", _ALIKE)
    ours, theirs = timed(_OURS, path), timed(code, path)
    what = f".metadata, {ranks} ranks, {path.stat().st_size / 1e6:.0f} MB : pickle.load with {kind}"
    report_ratio(f"{what}, time", ours=ours[1], bare=theirs[1], unit="s", aim=2)
    report_ratio(f"{what}, memory", ours=ours[2] / 1e6, bare=theirs[2] / 1e6, unit="MB", aim=0.5)
    assert count == ours[0] == theirs[0]
