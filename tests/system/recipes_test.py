#!/usr/bin/env python3
"""System tests of the configurations in recipes/."""

import pathlib
import re

from harness import main, run

RECIPES = sorted((pathlib.Path(__file__).resolve().parents[2] / "recipes").glob("*.conf"))


def options_of(recipe):
    return dict(line.split("=", 1) for line in recipe.read_text().splitlines() if line and not line.startswith("#"))


def a_recipe_names_its_source_and_what_it_is_meant_for(folder):
    assert len(RECIPES) >= 3, RECIPES
    for recipe in RECIPES:
        comment = [line for line in recipe.read_text().splitlines() if line.startswith("#")]
        assert any(line.startswith("# Source: ") for line in comment) and any(line.startswith("# Meant for ") for line in comment), recipe
        # A figure is measured, or marked as the source's.
        assert any("measured" in line for line in comment), recipe


def a_recipe_is_the_configuration_that_runs(folder):
    for recipe in RECIPES:
        printed = run(["train", "--config", recipe, "--synthetic", "--print-config"])
        values = dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)
        assert options_of(recipe).items() <= values.items(), (recipe, options_of(recipe).items() - values.items())


def the_page_of_recipes_has_every_value_of_each(folder):
    page = (RECIPES[0].parents[1] / "docs/recipes.md").read_text()
    sections = {section.split("\n", 1)[0]: section for section in page.split("\n## ")[1:]}
    assert sorted(sections) == sorted(recipe.name for recipe in RECIPES), sections.keys()
    for recipe in RECIPES:
        rows = [row.split("|")[1] for row in sections[recipe.name].splitlines() if row.startswith("| `")]
        shown = [value for row in rows for value in re.findall(r"`([^`]+)`", row)]
        assert sorted(shown) == sorted("=".join(option) for option in options_of(recipe).items()), recipe
        assert "lockstep pack " in recipe.read_text(), f"{recipe} does not say how to pack its data"


def a_recipe_trains(folder):
    for recipe in RECIPES:
        output = run(["train", "--config", recipe, "--synthetic", "--synthetic-samples", 64, "--image-size", 64, "--classes", 10, "--max-steps", 2,
                      "--global-batch-size", 4, "--width", 12 if "vit" in recipe.name else 8, "--run-dir", folder / recipe.stem], ranks=2)
        assert "step 2" in output or "finished" in output, (recipe, output)


if __name__ == "__main__":
    main([a_recipe_names_its_source_and_what_it_is_meant_for, a_recipe_is_the_configuration_that_runs, the_page_of_recipes_has_every_value_of_each, a_recipe_trains])
