"""Recipes by name, from their file."""

from __future__ import annotations

from typing import Any

from mlsysim.catalog.catalog import Catalog
from mlsysim.specs import recipe
from mlsysim.specs.recipe import Component, StateRecipe

__all__ = ["Recipes"]


def _recipe(fields: dict[str, Any]) -> StateRecipe:
    components: list[Component] = [_component(each) for each in fields["components"]]
    return StateRecipe(name=fields["title"], components=components)


def _component(fields: dict[str, Any]) -> Component:
    given = dict(fields)
    if "rule" in given:
        given["rule"] = getattr(recipe, given["rule"])()
    return Component(**given)


Recipes: Catalog[StateRecipe] = Catalog(name="Recipes", file="recipes.toml", build=_recipe)
