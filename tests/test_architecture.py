"""What DESIGN calls the architecture, held by the tests: layers, imports, classes, docstrings, one registry."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest

import mlsysim
from mlsysim import physics

ROOT = Path(mlsysim.__file__).parent
REPOSITORY = ROOT.parent
FILES = sorted(ROOT.rglob("*.py"))
TREES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in FILES}

# records of the card and of units: two or three words in a fixed order, read best without their names
POSITIONAL = {"mlsysim.report.card.Row", "mlsysim.report.card.Verdict", "mlsysim.fields.Kind"}


CATALOGS = ("Fleets", "Models", "Nodes", "Recipes", "Scenarios", "Stores")


def modules() -> Iterator[ModuleType]:
    """Every module of the package but the one that runs it."""
    yield mlsysim
    for found in pkgutil.walk_packages(mlsysim.__path__, "mlsysim."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


MODULES = list(modules())
CLASSES = {
    f"{each.__module__}.{each.__qualname__}": each for module in MODULES for each in vars(module).values()
    if inspect.isclass(each) and each.__module__ == module.__name__
}  # fmt: skip
LAWS = {
    f"{module.__name__}.{name}": getattr(module, name) for module in MODULES
    if module.__name__.startswith(f"{physics.__name__}.") for name in module.__all__ if inspect.isfunction(getattr(module, name))
}  # fmt: skip
# what goes on within a reader of one format is its own business
RECORDS = {
    name: each for name, each in CLASSES.items()
    if attrs.has(each) and (not name.startswith("mlsysim.layout.") or each.__name__ in importlib.import_module("mlsysim.layout").__all__)
}  # fmt: skip


def python(code: str) -> str:
    """What a fresh process prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(not (REPOSITORY / "pyproject.toml").exists(), reason="the contracts are written in the repository")
class TestLayers:
    """A module imports only from its left."""

    def test_contracts(self) -> None:
        """import-linter finds no import against the order."""
        command = [
            sys.executable,
            "-c",
            "import sys; from importlinter.cli import lint_imports_command as run; sys.exit(run())",
            "--no-cache",
        ]
        ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        assert (0, True) == (ended.returncode, "0 broken" in ended.stdout), ended.stdout + ended.stderr

    def test_every_module_has_a_layer(self) -> None:
        """No folder or file of the package is outside the contract."""
        contract = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"][0]
        layers = {name.strip() for layer in contract["layers"] for name in layer.split("|")}
        top = {f"mlsysim.{each.stem}" for each in ROOT.iterdir() if each.name != "__pycache__" and (each.is_dir() or each.suffix == ".py")}
        assert set() == {each for each in top if not each.endswith("__")} - layers


class TestImport:
    """``import mlsysim`` is light."""

    def test_no_third_party_module_is_added(self) -> None:
        """It loads no third-party module beyond what numpy, attrs and pint load."""
        names = "print(*sorted(name for name in sys.modules if name.partition('.')[0] not in sys.stdlib_module_names))"
        bare = set(python(f"import sys, numpy, attrs, pint; {names}").split())
        ours = set(python(f"import sys, mlsysim; {names}").split())
        assert set() == {name for name in ours - bare if name.partition(".")[0] != "mlsysim"}

    def test_one_registry(self) -> None:
        """It makes one unit registry, and leaves Pint's application registry unmade."""
        code = (
            "import gc, pint, mlsysim; from pint.facets.plain import GenericPlainRegistry as Plain; "
            "found = [each for each in gc.get_objects() if issubclass(type(each), Plain)]; "
            "print(len(found), found[0] is mlsysim.ureg, type(pint.get_application_registry().get()).__name__)"
        )
        assert ["1", "True", "LazyRegistry"] == python(code).split()

    def test_public_names(self) -> None:
        """Every name that the package promises is there, listed by ``dir``, and comes with a star."""
        namespace: dict[str, Any] = {}
        exec("from mlsysim import *", namespace)
        assert set(mlsysim.__all__) <= set(namespace) & set(dir(mlsysim))
        assert {"Q_", "InputError", "Scenarios", "TieredCheckpointScenario", "TieredCheckpointModel", "TieredCheckpointResult", "Check",
                "Workload", "Node", "Fleet", "Store", "Models", "Fleets"} <= set(mlsysim.__all__)  # fmt: skip

    @pytest.mark.parametrize("name", ["mlsysim.specs", "mlsysim.solvers", "mlsysim.engine.scenario_types", "mlsysim.layout"])
    def test_every_public_class(self, name: str) -> None:
        """Every class that a layer offers is offered by the package."""
        module = importlib.import_module(name)
        assert set() == {each for each in module.__all__ if inspect.isclass(getattr(module, each))} - set(mlsysim.__all__)

    def test_unknown_public_name(self) -> None:
        """A name that is not there is an AttributeError."""
        with pytest.raises(AttributeError, match="has no attribute 'Sceanrios'"):
            mlsysim.Sceanrios  # noqa: B018

    def test_only_units_makes_a_registry(self) -> None:
        """No module but ``units`` names a registry class of Pint, and none asks for the application registry."""
        named = {
            path for path, tree in TREES.items() for node in ast.walk(tree)
            if (isinstance(node, ast.Attribute) and node.attr in ("UnitRegistry", "GenericUnitRegistry", "application_registry",
                                                                  "get_application_registry", "set_application_registry"))
            or (isinstance(node, ast.ImportFrom) and any("egistry" in each.name for each in node.names) and node.module.startswith("pint"))
        }  # fmt: skip
        assert {"units.py"} == named


class TestClasses:
    """Every class is frozen and keyword-only."""

    @pytest.mark.parametrize("name", sorted(RECORDS))
    def test_frozen(self, name: str) -> None:
        """No field can be set after the fact."""
        made = object.__new__(RECORDS[name])
        for field in [each.name for each in attrs.fields(RECORDS[name])] or ["anything"]:
            with pytest.raises(AttributeError):
                setattr(made, field, None)

    @pytest.mark.parametrize("name", sorted(set(RECORDS) - POSITIONAL))
    def test_keyword_only(self, name: str) -> None:
        """Nothing is taken by position."""
        assert [] == [each.name for each in attrs.fields(RECORDS[name]) if each.init and not each.kw_only]

    def test_exceptions_exist(self) -> None:
        """The list of exceptions names classes that are there."""
        assert set() == POSITIONAL - set(RECORDS)

    def test_no_dataclass(self) -> None:
        """Records are made by attrs, all in one way."""
        assert [] == [name for name, each in CLASSES.items() if hasattr(each, "__dataclass_fields__")]


class TestSource:
    """What no file of the package does."""

    @pytest.mark.parametrize("path", sorted(TREES))
    def test_no_assert(self, path: str) -> None:
        """Bad input is an InputError: ``assert`` is for tests."""
        assert [] == [node.lineno for node in ast.walk(TREES[path]) if isinstance(node, ast.Assert)]

    @pytest.mark.parametrize("path", sorted(TREES))
    def test_nothing_is_evaluated(self, path: str) -> None:
        """No text is run as a program."""
        calls = {node.func.id for node in ast.walk(TREES[path]) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        assert set() == calls & {"eval", "exec", "compile", "__import__"}

    @pytest.mark.parametrize("path", sorted(TREES))
    def test_every_file_says_what_it_is(self, path: str) -> None:
        """A file begins with a sentence."""
        assert ast.get_docstring(TREES[path])

    @pytest.mark.parametrize("path", sorted(path for path in TREES if path.split("/")[0] in ("physics", "solvers")))
    def test_no_physical_number(self, path: str) -> None:
        """Laws and solvers hold no number but those of their formulas: physical ones have a source, in the catalog."""
        numbers = {
            node.value for node in ast.walk(TREES[path])
            if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool)
        }  # fmt: skip
        # 1e-12 is the rounding that an even share may have; 4 and 6 are digits shown
        assert set() == numbers - {0, 1, 2, 4, 6, 1e-12}

    @pytest.mark.parametrize("path", sorted(path for path in TREES if not path.startswith("layout/")))
    def test_length(self, path: str) -> None:
        """A file holds at most 250 lines of code: one idea."""
        tree, text = TREES[path], (ROOT / path).read_text(encoding="utf-8")
        words: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
                words |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
        written = [line.strip() for number, line in enumerate(text.splitlines(), 1) if number not in words]
        code = [line for line in written if line and not line.startswith("#")]
        assert 250 >= len(code)

    def test_no_unit_in_a_name(self) -> None:
        """No argument or field is named for its unit."""
        pattern = re.compile(r"_(s|sec|seconds|ms|min|minutes|hours|gb|gbps|tb|mb|gib|bytes_per_s)$")
        found = {
            f"{path}:{node.arg}" for path, tree in TREES.items() for node in ast.walk(tree)
            if isinstance(node, ast.arg) and pattern.search(node.arg.lower())
        }  # fmt: skip
        assert set() == found


SECTIONS = ("Parameters", "Returns", "Raises", "Notes", "References", "Examples")


class TestDocstrings:
    """The sections that numpydoc knows, where they belong."""

    def test_laws_were_found(self) -> None:
        """There are laws to look at."""
        assert {"mlsysim.physics.tiered.drain_time", "mlsysim.physics.quantities.memory_from_params"} <= set(LAWS)

    @pytest.mark.parametrize("name", sorted(LAWS))
    def test_sections_of_a_law(self, name: str) -> None:
        """A law has its sections in order, an equation, what it assumes and ignores, and an example that runs."""
        text = inspect.getdoc(LAWS[name]) or ""
        headings = re.findall(r"^(\w+)\n-+$", text, re.MULTILINE)
        assert list(SECTIONS) == headings
        for part in ("Equation: ``", "Assumes: ", "Ignores: ", ">>> "):
            assert part in text, part

    @pytest.mark.parametrize("name", sorted(LAWS))
    def test_every_argument_of_a_law_is_told(self, name: str) -> None:
        """The parameters of the docstring are those of the signature, in order, each with its dimension or type."""
        from numpydoc.docscrape import FunctionDoc

        told = [(word.strip(), each.type) for each in FunctionDoc(LAWS[name])["Parameters"] for word in each.name.split(",")]
        assert list(inspect.signature(LAWS[name]).parameters) == [word for word, _ in told]
        assert [] == [word for word, kind in told if not re.search(r"\[[a-z /]+\]|int|float", kind)]

    @pytest.mark.parametrize("name", sorted(LAWS))
    def test_arguments_of_one_dimension_are_keyword_only(self, name: str) -> None:
        """Two arguments that could be swapped are given by name."""
        from numpydoc.docscrape import FunctionDoc

        kinds = {word.strip(): each.type for each in FunctionDoc(LAWS[name])["Parameters"] for word in each.name.split(",")}
        by_position = [each.name for each in inspect.signature(LAWS[name]).parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD]
        dimensions = [re.findall(r"\[[a-z /]+\]", kinds[each]) for each in by_position]
        assert len(dimensions) == len({str(each) for each in dimensions})

    @pytest.mark.parametrize("name", sorted({*mlsysim.__all__} - {"Scenario", "ureg", *CATALOGS}))
    def test_public_things_are_told(self, name: str) -> None:
        """Every public class and function has a docstring with an example or parameters."""
        text = inspect.getdoc(getattr(mlsysim, name)) or ""
        assert re.search(r"^(Parameters|Examples)\n-+$", text, re.MULTILINE), text


@pytest.mark.parametrize("name", sorted(LAWS))
def test_a_law_needs_no_spec(name: str) -> None:
    """Laws take quantities and plain numbers only."""
    taken = " ".join(str(each) for each in inspect.get_annotations(LAWS[name]).values())
    assert set() == set(re.findall(r"\w+", taken)) & {"Workload", "Fleet", "Node", "Store", "TieredCheckpointScenario"}
