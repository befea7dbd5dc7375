#!/usr/bin/env python3
"""comparison_test.py LOCKSTEP: tests what the comparisons with PyTorch share, and runs one of them."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import compare_recipes  # noqa: E402
import harness  # noqa: E402

LOCKSTEP = sys.argv[1]


def ratios_are_within_a_round():
    ours = [{"rate": rate} for rate in (10, 20, 60)]
    theirs = [{"rate": rate} for rate in (10, 10, 20)]
    assert harness.ratio(ours, theirs, "rate") == {"median": 2, "min": 1, "max": 3}


def programs_run_in_turn():
    order = []
    programs = {name: lambda name=name: order.append(name) or len(order) for name in "ab"}
    assert harness.in_turn(2, programs) == {"a": [1, 3], "b": [2, 4]} and order == ["a", "b", "a", "b"]
    order.clear()
    harness.in_turn(2, programs, alternate=True)
    assert order == ["a", "b", "b", "a"]


def the_best_peer_has_the_highest_median():
    peers = [{"form": form, "images_per_second": harness.spread(rates)} for form, rates in (("default", [1, 2, 90]), ("tuned", [3, 4, 5]))]
    assert harness.best(peers)["form"] == "tuned"


def a_recipe_that_pytorchs_side_does_not_follow_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "recipe.conf")
        for line in ("cutmix=1", "auto-augment=randaugment", "momentum=0.8"):
            path.write_text(f"lr=0.1\n{line}\n")
            try:
                compare_recipes.read_recipe(path)
            except SystemExit as error:
                assert line.split("=")[0] in str(error), error
            else:
                raise AssertionError(f"{line} was taken")
    for recipe in (BENCHMARKS / "modern-recipe.conf", BENCHMARKS.parent / "recipes/fashion-mnist.conf"):
        assert compare_recipes.read_recipe(recipe)


def a_failed_program_ends_the_comparison():
    try:
        harness.measured([sys.executable, "-c", "import sys; print('said'); sys.exit(3)"])
    except SystemExit as error:
        assert "ended with 3" in str(error) and "said" in str(error), error
    else:
        raise AssertionError("a failure went unnoticed")


def a_step_is_compared_with_the_fastest_form():
    try:
        import torch
    except ImportError:
        print("skipped: PyTorch is not installed")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "result.json")
        printed = subprocess.run([sys.executable, BENCHMARKS / "compare_pytorch.py", LOCKSTEP, path, "--models", "mini-resnet", "--rounds", "1",
                                  "--python", sys.executable], check=True, capture_output=True, text=True).stdout
        result = json.loads(path.read_text())
    row = result["rows"][0]
    assert result["definition"] == "samples by total time" and result["warmup"] == 2, result
    forms = {peer["form"]: peer for peer in row["peers"]}
    assert {"default", "tuned"} <= forms.keys() and ("compiled" in forms) == hasattr(torch, "compile"), forms.keys()
    assert row["best"]["images_per_second"]["median"] == max(peer["images_per_second"]["median"] for peer in forms.values())
    assert printed.count("<- the best") == 1 and f"PyTorch {torch.__version__}" in printed, printed
    ours = row["lockstep"]["auto"]["images_per_second"]["median"]
    assert row["best"]["ratio"]["median"] == ours / row["best"]["images_per_second"]["median"]
    # Importing PyTorch takes more than the step.
    assert all(0 < peer["peak_mib"] < 1000 for peer in forms.values()), forms


def a_whole_training_is_compared():
    if not pathlib.Path("/usr/share/datasets/fashion-mnist").exists():
        print("a training is not compared: Fashion-MNIST is not installed (dataset-fashion-mnist)")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "result.json")
        printed = subprocess.run([sys.executable, BENCHMARKS / "compare_training.py", LOCKSTEP, path, "--width", "4", "--steps", "2", "--rounds", "1",
                                  "--python", sys.executable], check=True, capture_output=True, text=True).stdout
        result = json.loads(path.read_text())
    assert {peer["form"] for peer in result["peers"]} == {"default", "tuned"}
    for peer in result["peers"]:
        for key, whose, other in (("ratio", result["lockstep"], peer), ("command_ratio", peer, result["lockstep"])):
            rate = "images_per_second" if key == "ratio" else "command_seconds"
            assert peer[key]["median"] == whose[rate]["median"] / other[rate]["median"], (key, peer)
        assert 0.02 < peer["top1"]["median"] < 0.9 and "whole command" in printed, (peer, printed)


def accuracies_are_compared_in_pooled_deviations():
    sides = {"Lockstep": [0.90, 0.92], "PyTorch": [0.91, 0.97]}
    runs = {name: [{"began": 5, "command_seconds": 9, "others": 0, "evaluations": [{"top1": 0.5, "at": 7}, {"top1": value, "at": 8}]} for value in values]
            for name, values in sides.items()}
    row = compare_recipes.report(runs, 0.9, True)
    found = row["differences"]["top1"]
    # Deviations of 0.01 and 0.03 times the root of two.
    assert abs(found["difference"] + 0.03) < 1e-12 and abs(found["deviations"] + 0.03 / 0.001 ** 0.5) < 1e-9, found
    assert row["sides"]["Lockstep"]["seconds_to_target"] == [3, 3] and row["time_ratio"]["median"] == 1, row


def a_log_gives_the_evaluations_of_weights_and_average():
    line = "2026-01-02 03:04:0{}.500 I evaluation{} at step 9: loss 0.5, top-1 0.{}, top-5 0.99\n"
    log = "".join(line.format(*row) for row in ((1, "", 81), (2, " of the average", 82), (3, "", 83), (4, " of the average", 84)))
    (first, second) = compare_recipes.logged_evaluations(log)
    assert (first["top1"], first["ema_top1"], second["top1"], second["ema_top1"]) == (0.81, 0.82, 0.83, 0.84)
    assert second["at"] - first["at"] == 2


QUICK = (ratios_are_within_a_round, programs_run_in_turn, the_best_peer_has_the_highest_median,
         a_recipe_that_pytorchs_side_does_not_follow_is_refused, a_failed_program_ends_the_comparison,
         accuracies_are_compared_in_pooled_deviations, a_log_gives_the_evaluations_of_weights_and_average)
SOAK = (a_step_is_compared_with_the_fastest_form, a_whole_training_is_compared)

if __name__ == "__main__":
    for test in SOAK if os.environ.get("LOCKSTEP_TEST_SOAK") else QUICK:
        test()
        print(f"ok      {test.__name__}")
