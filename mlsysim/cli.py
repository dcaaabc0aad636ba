"""The command line: ``mlsysim check``, ``layout``, ``bytes``, ``list``.

Exit codes: 0 feasible or done, 3 not feasible, 2 bad input.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import attrs
from cyclopts import App, CycloptsError, Parameter

import mlsysim
from mlsysim.catalog import Catalog, Fleets, Models, Nodes, Stores
from mlsysim.catalog.recipes import Recipes
from mlsysim.engine.files import changed, find_scenario
from mlsysim.engine.scenario_types import Scenario
from mlsysim.engine.scenarios import Scenarios
from mlsysim.errors import InputError, nearest
from mlsysim.fields import take_count
from mlsysim.layout import CheckpointLayout, Report, read_checkpoint
from mlsysim.layout.card import card_of, layout_fields
from mlsysim.report.jsonable import jsonable

if TYPE_CHECKING:
    from mlsysim.specs.recipe import StateRecipe

__all__ = ["app", "main"]

FEASIBLE, BAD_INPUT, INFEASIBLE = 0, 2, 3

app = App(
    name="mlsysim",
    help="What does saving a checkpoint cost, is this plan safe, how often should I save, and what must I buy?\n\n"
    "Try: mlsysim check Gpt3TieredCheckpoint2K",
    version=mlsysim.__version__,
    help_format="plaintext",
    result_action="return_value",
)


def _whole(_: Any, tokens: Sequence[Any]) -> int:
    """A whole number as it is written; cyclopts itself would take 2.6 as 3."""
    text = tokens[0].value
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise InputError(tokens[0].keyword or "the number", "a whole number", text, "Write 8, say.")
    return int(text)


@app.command
def check(
    scenario: str,
    /,
    *,
    set: Annotated[tuple[str, ...], Parameter(name="--set", consume_multiple=False, negative=())] = (),  # noqa: A002
    json: Annotated[bool, Parameter(negative=())] = False,
    binary: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Say whether a plan works, what a save costs, and what would mend it.

    Examples
    --------
      mlsysim check Gpt3TieredCheckpoint2K
      mlsysim check plan.toml --set save_interval="5 min" --set fleet.count=512

    Exits with 0 if feasible, 3 if not, 2 if the input is bad.

    Parameters
    ----------
    scenario
        A name that `mlsysim list` shows, or a .toml or .json file.
    set
        Change a field before checking, by dotted path; may be given several times.
    json
        Print the answer as JSON: base units, stable keys.
    binary
        Print sizes in GiB instead of GB.
    """
    case = find_scenario(scenario)
    if set:
        case = changed(case, set)
    result = case.result
    if json:
        _print_json({"scenario": case.to_dict(), **jsonable(result)})
    else:
        print(_about(scenario, case, set, binary))
        print(case.card(binary=binary).text())
        _print_sources(scenario, set)
    return FEASIBLE if result.feasible else INFEASIBLE


def _about(name: str, case: Scenario, changes: Sequence[str], binary: bool) -> str:
    given = [*case.about(binary=binary), *(f"changed here: {change}" for change in changes)]
    lines = "\n".join(f"  {line}" for line in given)
    return f"{Scenarios.title(name) if name in Scenarios else name}\n\n{lines}\n"


@app.command
def layout(
    path: str,
    /,
    *,
    ranks_per_node: Annotated[int | None, Parameter(converter=_whole)] = None,
    verify: Annotated[bool, Parameter(negative=())] = False,
    format: str | None = None,  # noqa: A002
    json: Annotated[bool, Parameter(negative=())] = False,
    binary: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Read a real checkpoint: who wrote which bytes, how evenly, how often, and whether it is whole.

    Examples
    --------
      mlsysim layout runs/step_1000 --ranks-per-node 8
      mlsysim layout model.safetensors --verify

    Exits with 0, or with 3 if --verify finds an error, 2 if the input is bad.

    Parameters
    ----------
    path
        A folder, or the file that describes the checkpoint.
    ranks_per_node
        Consecutive ranks that share a node; adds bytes per node.
    verify
        Read every byte and check it against what was recorded.
    format
        Read it as one format, without looking for others.
    json
        Print the layout as JSON: base units, stable keys.
    binary
        Print sizes in GiB instead of GB.
    """
    if ranks_per_node is not None:
        take_count(ranks_per_node, "--ranks-per-node")
    found = read_checkpoint(path, format)
    report = _verified(found) if verify else None
    if json:
        _print_json(layout_fields(found, ranks_per_node, report))
    else:
        print(card_of(found, binary=binary, ranks_per_node=ranks_per_node).text())
        if report is not None:
            print(f"\n{report!r}")
    return INFEASIBLE if report is not None and not report.ok else FEASIBLE


@app.command(name="bytes")
def bytes_(
    *,
    config: str,
    recipe: str,
    plan: str | None = None,
    lora_rank: Annotated[int | None, Parameter(converter=_whole)] = None,
    lora_base: str | None = None,
    ranks_per_node: Annotated[int, Parameter(converter=_whole)] = 8,
    json: Annotated[bool, Parameter(negative=())] = False,
    binary: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Say how many bytes a save of a model holds, component by component and rank by rank.

    Examples
    --------
      mlsysim bytes --config config.json --recipe mixed-adam
      mlsysim bytes --config config.json --recipe mixed-adam --plan "tp=8,pp=16,dp=70,zero=1"

    Parameters
    ----------
    config
        A Hugging Face config.json.
    recipe
        What a save holds for each parameter; `mlsysim list` shows them.
    plan
        Degrees of parallelism: tp, pp, dp, cp, ep, zero, shard, vocab, devices, layers, writers, sharding.
    lora_rank
        Train adapters of this rank only.
    lora_base
        Element type of the frozen base, where a save of adapters holds it too.
    ranks_per_node
        Consecutive ranks that share a node.
    json
        Print as JSON: base units, stable keys.
    binary
        Print sizes in GiB instead of GB.
    """
    from mlsysim.layout.state_bytes import state_bytes
    from mlsysim.specs.huggingface import shape_from_config
    from mlsysim.specs.plan_text import plan_from_text

    take_count(ranks_per_node, "--ranks-per-node")
    found = state_bytes(shape_from_config(config), _recipe(recipe, lora_rank, lora_base), None if plan is None else plan_from_text(plan))
    if json:
        _print_json(jsonable(found))
    else:
        print(found.card(binary=binary, ranks_per_node=ranks_per_node).text())
    return FEASIBLE


def _recipe(name: str, rank: int | None, base: str | None) -> StateRecipe:
    """A recipe by its name, with hyphens or underscores; on adapters where a rank is given."""
    from mlsysim.specs.recipe import Adapters

    key = name.replace("-", "_")
    if key not in Recipes:
        raise InputError("--recipe", "the name of a recipe", name, nearest(key, Recipes))
    found: StateRecipe = getattr(Recipes, key)
    if rank is None:
        if base is not None:
            raise InputError("--lora-base", "given with --lora-rank", base, "Add --lora-rank 16, say.")
        return found
    return attrs.evolve(found, name=f"{found.name}, adapters of rank {rank}", adapters=Adapters(rank=rank, base=base))


def _verified(found: CheckpointLayout) -> Report:
    """Verify with a progress bar on stderr, where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("verifying"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("verifying", total=float(found.payload_bytes.base))
        return found.verify(payload=True, advance=lambda count: progress.advance(task, count))


def _print_sources(name: str, changes: Sequence[str]) -> None:
    if name not in Scenarios:
        return
    replaced = {change.partition("=")[0].strip() for change in changes}
    assumed = [source for source in Scenarios.sources(name) if source.assumed and source.field not in replaced]
    if assumed:
        print("\nAssumed, not published:")
        for source in assumed:
            print(f"  {source.field} = {source.value}: {source.note}")
    print(f"\nSources: mlsysim list {name}")


@app.command(name="list")
def list_(name: str | None = None, /, *, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Show the named cases and the catalog, or the sources of one entry.

    Examples
    --------
      mlsysim list
      mlsysim list Gpt3TieredCheckpoint2K

    Parameters
    ----------
    name
        An entry; its numbers are shown with their sources.
    json
        Print as JSON.
    """
    catalogs = (Scenarios, Models, Recipes, Fleets, Nodes, Stores)
    if name is not None:
        _print_entry(name, catalogs, json)
    elif json:
        _print_json({each.name: list(each) for each in catalogs})
    else:
        for each in catalogs:
            width = max(map(len, each))
            print(f"{each.name}\n" + "\n".join(f"  {entry:<{width}}  {each.title(entry)}" for entry in each) + "\n")
    return FEASIBLE


def _print_entry(name: str, catalogs: Sequence[Catalog[Any]], as_json: bool) -> None:
    for each in catalogs:
        if name in each:
            sources = each.sources(name)
            if as_json:
                _print_json([jsonable(source) for source in sources])
            else:
                print(f"{each.title(name)} ({each.name}.{name})\n" + "\n".join(f"  {source}" for source in sources))
            return
    raise InputError("the entry", "a name that `mlsysim list` shows", name, nearest(name, [entry for each in catalogs for entry in each]))


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; bad input is one line on stderr and exit code 2."""
    try:
        done = app(arguments, exit_on_error=False, print_error=False)
        return done if isinstance(done, int) else 0
    except InputError as error:
        print(f"mlsysim: {error}", file=sys.stderr)
    except CycloptsError as error:
        told = f"{error.__cause__}" if isinstance(error.__cause__, InputError) else f"{' '.join(str(error).split())} See mlsysim --help."
        print(f"mlsysim: {told}", file=sys.stderr)
    except BrokenPipeError:
        sys.stderr.close()
        return FEASIBLE
    except KeyboardInterrupt:
        return 130
    return BAD_INPUT


def run() -> None:
    """The entry point of the console script."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show is no reason to fail
    sys.exit(main())
