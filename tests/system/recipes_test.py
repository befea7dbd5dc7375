#!/usr/bin/env python3
"""System tests of the configurations in recipes/."""

import pathlib

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


def a_recipe_trains(folder):
    for recipe in RECIPES:
        output = run(["train", "--config", recipe, "--synthetic", "--synthetic-samples", 64, "--image-size", 64, "--classes", 10, "--max-steps", 2,
                      "--global-batch-size", 4, "--width", 8, "--run-dir", folder / recipe.stem], ranks=2)
        assert "step 2" in output or "finished" in output, (recipe, output)


if __name__ == "__main__":
    main([a_recipe_names_its_source_and_what_it_is_meant_for, a_recipe_is_the_configuration_that_runs, a_recipe_trains])
