#!/usr/bin/env python3
"""Tests that classes are matched by name wherever data meets a network: in evaluations, in resumed runs and with initial weights."""

import shutil

from harness import *  # noqa: F403

CLASSES = ["cat", "dog, hot", 'the "owl"', "ünïcode\nline"]
REVERSED = CLASSES[::-1]
COLOURS = dict(zip(CLASSES, [(200, 20, 20), (20, 200, 20), (20, 20, 200), (120, 120, 120)]))
SAMPLES = 48


def write_named(directory, names, split="train", only=None, shards=2, samples=SAMPLES, named=True, checksums=True):
    """Images that depend on the name of their class, so data sets with other numbers have the same images in the same order."""
    directory.mkdir(parents=True, exist_ok=True)
    present = sorted(only or names)
    for shard in range(shards):
        numbers = range(shard, samples, shards)
        images = np.empty((len(numbers), 12, 12, 3), "u1")
        labels = np.empty(len(numbers), "i8")
        for row, number in enumerate(numbers):
            name = present[number % len(present)]
            colour = np.array(COLOURS[name] if name in COLOURS else (0, 0, 0), "u1")
            images[row] = colour + np.random.default_rng(number).integers(0, 40, (12, 12, 3), "u1")
            labels[row] = names.index(name)
        with h5py.File(directory / f"{split}-{shard:05}-of-{shards:05}.h5", "w") as file:
            file["images"], file["labels"] = images, labels
            if checksums:
                file["crc32c"] = np.array([crc32c(image.tobytes() + int(label).to_bytes(8, "little"))
                                           for image, label in zip(images, labels)], "u4")
            file.attrs["classes"] = len(names)
            file.attrs["mean"], file.attrs["std"] = [0.4] * 3, [0.3] * 3
            if named:
                file.attrs["class_names"] = np.array(names, h5py.string_dtype())
    return directory


def training(data, run_dir, *more):
    return ["train", "--data", data, "--run-dir", run_dir, "--model", "mini-resnet", "--width", 8, "--batch-size", 8, "--lr", 0.02, "--threads", 1,
            "--log-every", 1, "--progress", "plain", *more]


def names_in(path):
    with h5py.File(path) as file:
        return [name.decode() if isinstance(name, bytes) else name for name in file.attrs["class_names"]] if "class_names" in file.attrs else None


def rename(data, names):
    """Changes the attribute alone."""
    for shard in data.glob("*.h5"):
        with h5py.File(shard, "r+") as file:
            del file.attrs["class_names"]
            if names is not None:
                file.attrs["class_names"] = np.array(names, h5py.string_dtype())
    return data


def names_that_are_no_utf8_are_matched(folder):
    names = [b"caf\xe9", b"caf\xe8"]
    data, swapped = (write_named(folder / name, CLASSES[:2], named=False) for name in ("data", "swapped"))
    for directory, order in ((data, names), (swapped, names[::-1])):
        for shard in directory.glob("*.h5"):
            with h5py.File(shard, "r+") as file:
                file.attrs["class_names"] = np.array(order)
                if order != names:
                    file["labels"][...] = 1 - file["labels"][...]
                    del file["crc32c"]
    run(training(data, folder / "run", "--epochs", 6))
    results = [json.loads(run(["eval", "--checkpoint", latest(folder / "run"), "--data", directory, "--split", "train", "--json"]).splitlines()[-1])
               for directory in (data, swapped)]
    assert results[0]["top1"] == results[1]["top1"] == 1, results


def trained(folder):
    """A checkpoint that knows each class of its data."""
    data = write_named(folder / "data", CLASSES)
    if not (folder / "run").exists():
        run(training(data, folder / "run", "--epochs", 8))
    return latest(folder / "run")


def evaluated(folder, checkpoint, data, ranks=1, split="train", options=()):
    """What eval says, in bytes and values; and its warnings."""
    csv, predictions = folder / "c.csv", folder / "p.h5"
    output = run(["eval", "--checkpoint", checkpoint, "--data", data, "--split", split, "--json", "--per-class", "--overwrite", "--confusion", csv,
                  "--predictions", predictions, *options], ranks).splitlines()
    with h5py.File(predictions) as file:
        values = {name: file[name][...].tolist() for name in file}
        identity = file.attrs["data_identity"]
    values["names"] = names_in(predictions)
    inspected = json.loads(run(["inspect", data, "--json"]))["splits"]
    assert [f"{identity:08x}"] == [each["identity"] for each in inspected if each["split"] == split], inspected
    return {**json.loads(output[-1]), "seconds": 0, "csv": csv.read_text(), **values}, [line for line in output if "warning:" in line]


def eval_matches_other_orders_of_the_classes(folder):
    checkpoint = trained(folder)
    for checksums, ranks in ((True, 1), (False, 2), (True, 3)):
        data = write_named(folder / f"reversed-{checksums}", REVERSED, checksums=checksums)
        expected, warnings = evaluated(folder, checkpoint, folder / "data", ranks)
        assert not warnings and expected["top1"] == 1 and expected["names"] == CLASSES, (expected, warnings)
        found, warnings = evaluated(folder, checkpoint, data, ranks)
        assert found == expected, (found, expected)
        assert len(warnings) == 1 and "4 of the 4 classes" in warnings[0] and 'is 3, not 0' in warnings[0], warnings


def eval_takes_some_of_the_classes(folder):
    checkpoint = trained(folder)
    for some in (CLASSES[1:], CLASSES[:2], [CLASSES[3], CLASSES[1]], CLASSES[2:3]):
        data = write_named(folder / f"{CLASSES.index(some[0])}-{len(some)}", some, samples=31)
        whole = write_named(folder / f"whole-{CLASSES.index(some[0])}-{len(some)}", CLASSES, only=some, samples=31)
        for ranks in (1, 3):
            expected, warnings = evaluated(folder, checkpoint, whole, ranks)
            assert not warnings and expected["top1"] == 1, (expected, warnings)
            found, warnings = evaluated(folder, checkpoint, data, ranks)
            assert found == expected, (found, expected)
            assert len(warnings) == 1 and f"{len(some)} of the 4 classes" in warnings[0], warnings
        counts = {of["name"]: of["samples"] for of in found["classes"]}
        assert [counts[name] > 0 for name in CLASSES] == [name in some for name in CLASSES], counts


def eval_refuses_classes_that_it_cannot_match(folder):
    checkpoint = trained(folder)
    cases = {"larger": ([*CLASSES, "hen"], '"hen": 1 of its 5'), "other": (["ant", "bee"], '"ant", "bee": 2 of its 2; only'),
             "renamed": ([*CLASSES[:3], "hen"], '"ünïcode line": 1 of its 4'), "twice": (["cat", "cat", CLASSES[1]], '"cat" is no name of one')}
    for case, (names, text) in cases.items():
        data = write_named(folder / case, names)
        for ranks in (1, 3):
            output = run(["eval", "--checkpoint", checkpoint, "--data", data, "--split", "train"], ranks, expect=BAD_INPUT)
            assert text in output and output.count("error:") == 1 and f"split train of {data}" in output and str(checkpoint) in output, output
            assert "--class-names" in output, output
        if case != "twice":  # a larger number of classes was refused before by its number alone
            output = run(training(folder / "data", folder / "val", "--val-data", as_val(data), "--max-steps", 1), 2, expect=BAD_INPUT)
            assert text in output and output.count("error:") == 1 and "split val" in output, output
    twice = write_named(folder / "cranes", ["crane", "dog", "crane"])
    run(training(twice, folder / "cranes-run", "--max-steps", 1))
    assert "warning" not in run(["eval", "--checkpoint", latest(folder / "cranes-run"), "--data", twice, "--split", "train"])


def as_val(data):
    """A copy of a data set whose split train is val."""
    copy = data.with_name(data.name + "-val")
    if not copy.exists():
        copy.mkdir()
        for shard in data.glob("train-*.h5"):
            shutil.copy(shard, copy / shard.name.replace("train", "val"))
    return copy


def without_names_on_one_side_numbers_decide_and_a_note_says_so(folder):
    checkpoint = trained(folder)
    unnamed = write_named(folder / "unnamed", CLASSES, named=False)
    for ranks in (1, 2):
        expected, _ = evaluated(folder, checkpoint, folder / "data", ranks)
        found, warnings = evaluated(folder, checkpoint, unnamed, ranks)
        assert found["names"] is None and found["loss"] == expected["loss"] and found["labels"] == expected["labels"], found
        assert len(warnings) == 1 and f"split train of {unnamed} has no class names, {checkpoint} has 4" in warnings[0], warnings
    weights = folder / "weights.h5"
    with h5py.File(checkpoint) as source, h5py.File(weights, "w") as file:
        source.copy("model", file)
        file.attrs["mean"], file.attrs["std"] = source.attrs["mean"], source.attrs["std"]
    options = ["--model", "mini-resnet", "--width", 8]
    found, warnings = evaluated(folder, weights, folder / "data", options=options)
    assert len(warnings) == 1 and f"{weights} has no class names, split train of {folder / 'data'} has 4" in warnings[0], warnings
    assert found["labels"] == expected["labels"] and found["top1"] == 1, found
    _, warnings = evaluated(folder, weights, unnamed, options=options)
    assert not warnings, warnings
    # Names without a number of classes give it.
    with h5py.File(weights, "r+") as file:
        file.attrs["class_names"] = np.array(CLASSES, h5py.string_dtype())
    some = write_named(folder / "some", CLASSES[2:])
    found, warnings = evaluated(folder, weights, some, options=options)
    assert found["top1"] == 1 and len(warnings) == 1, (found, warnings)
    output = run(["train", "--synthetic", "--synthetic-samples", 16, "--image-size", 12, "--classes", 4, "--max-steps", 1, "--run-dir",
                  folder / "synthetic", "--init-from", weights, *MODEL], ranks=2)
    assert "synthetic data has no class names" in output, output


def evaluations_of_a_run_match_names(folder):
    data = write_named(folder / "data", CLASSES)
    runs = {}
    for case, names in (("same", CLASSES), ("reversed", REVERSED), ("some", CLASSES[2:]), ("all", None)):
        val = write_named(folder / case, names or CLASSES, "val", only=names or CLASSES[2:], samples=24)
        for ranks in (1, 2):
            output = run(training(data, folder / f"{case}-{ranks}", "--val-data", val, "--epochs", 8), ranks)
            assert output.count("labels are matched by name") == (case in ("reversed", "some")), output
            assert f"split train of {data}" in output or case in ("same", "all"), output
            runs[case, ranks] = [without_measurements(event) for event in events(folder / f"{case}-{ranks}", "eval")]
    for ranks in (1, 2):
        assert runs["same", ranks][-1]["top1"] == 1, runs["same", ranks]
        assert runs["reversed", ranks] == runs["same", ranks]
        assert runs["some", ranks] == runs["all", ranks], (runs["some", ranks], runs["all", ranks])
    # The split val of the same directory.
    both = write_named(folder / "both", CLASSES)
    write_named(both, REVERSED, "val", samples=24)
    output = run(training(both, folder / "both-run", "--epochs", 8))
    assert "labels are matched by name" in output and events(folder / "both-run", "eval")[-1]["top1"] == 1, output
    inspected = run(["inspect", both])
    assert "split val has 4 of the 4 classes of split train" in inspected, inspected
    output = run(training(write_named(both, ["ant", "bee"], "val"), folder / "both-run-2", "--max-steps", 1), 3, expect=BAD_INPUT)
    assert '"ant", "bee"' in output and output.count("error:") == 1, output
    inspected = run(["inspect", both], expect=BAD_INPUT)
    assert "split val and split train have different classes" in inspected, inspected


def a_run_resumes_with_other_numbers_as_if_nothing_had_changed(folder):
    data = write_named(folder / "data", CLASSES)
    moved = write_named(folder / "reversed", REVERSED)
    for ranks in (1, 2, 3):
        whole, pieces = folder / f"whole-{ranks}", folder / f"pieces-{ranks}"
        run(training(data, whole, "--max-steps", 9), ranks)
        for steps, where in ((3, data), (6, moved), (9, data)):
            output = run(training(where, pieces, "--max-steps", steps), ranks)
            assert output.count("labels are matched by name") == (where == moved), output
            assert names_in(latest(pieces)) == CLASSES
        assert_same_run(whole, pieces)
        assert state(latest(whole))["data_identity"] == state(latest(pieces))["data_identity"]


def a_run_does_not_resume_with_other_classes(folder):
    data = write_named(folder / "data", CLASSES)
    args = training(data, folder / "run")
    run([*args, "--max-steps", 2])
    other = write_named(folder / "other", [*CLASSES[:3], "hen"])
    for ranks in (1, 2):
        output = run([*training(other, folder / "run"), "--max-steps", 4], ranks, expect=BAD_INPUT)
        assert 'has "hen": 1 of its 4' in output and output.count("error:") == 1 and "--run-dir" in output, output
        # The labels are the run's, but are called by other names.
        output = run([*training(rename(data, REVERSED), folder / "run"), "--max-steps", 4], ranks, expect=BAD_INPUT)
        assert "only the attribute class_names has changed" in output and output.count("error:") == 1, output
        rename(data, CLASSES)
    rename(data, None)
    output = run([*args, "--max-steps", 4])
    assert f"split train of {data} has no class names" in output and names_in(latest(folder / "run")) == CLASSES, output


def initial_weights_with_their_head_keep_their_classes(folder):
    checkpoint = trained(folder)
    moved = write_named(folder / "reversed", REVERSED)
    for ranks in (1, 3):
        args = ["--init-from", checkpoint, *(["--stage-dir", folder / "stage"] if ranks == 3 else [])]
        output = run([*training(moved, folder / f"moved-{ranks}", *args), "--max-steps", 1], ranks)
        assert "labels are matched by name" in output, output
        assert names_in(latest(folder / f"moved-{ranks}")) == CLASSES
        # Either numbering continues the run, and its first step was that of the other.
        output = run([*training(moved, folder / f"moved-{ranks}", *args), "--max-steps", 2], ranks)
        assert "labels are matched by name" in output, output
        output = run([*training(folder / "data", folder / f"moved-{ranks}", *args), "--max-steps", 3], ranks)
        assert "labels are matched by name" not in output, output
        run([*training(folder / "data", folder / f"plain-{ranks}", *args), "--max-steps", 3], ranks)
        assert_same_run(folder / f"moved-{ranks}", folder / f"plain-{ranks}")
    for names in (CLASSES[1:], [*CLASSES[:3], "hen"]):
        other = write_named(folder / f"other-{len(names)}", names)
        options = ["--classes", 4, "--init-from", checkpoint, "--max-steps", 1]
        output = run(training(other, folder / "new", *options), 2, expect=BAD_INPUT)
        assert "have different classes" in output and "--init-head new" in output and output.count("error:") == 1, output
        output = run(training(other, folder / f"new-{len(names)}", *options, "--init-head", "new"))
        assert "different" not in output and names_in(latest(folder / f"new-{len(names)}")) == names, output


def names_that_do_not_fit_their_number_are_refused(folder):
    data = write_named(folder / "data", CLASSES)
    rename(data, CLASSES[:3])
    output = run(training(data, folder / "run", "--max-steps", 1), 2, expect=BAD_INPUT)
    assert "3 class_names for 4 classes" in output, output
    checkpoint = folder / "checkpoint.h5"
    shutil.copy(trained(folder / "other"), checkpoint)
    with h5py.File(checkpoint, "r+") as file:
        file.attrs["class_names"] = np.array([*CLASSES, "hen"], h5py.string_dtype())
    output = run(["eval", "--checkpoint", checkpoint, "--data", folder / "other" / "data"], 2, expect=BAD_INPUT)
    assert "5 class_names for 4 classes" in output, output


def a_start_warns_of_classes_that_teach_nothing(folder):
    one = write_named(folder / "one", ["cat"])
    output = run(training(one, folder / "one-run", "--max-steps", 1), 2)
    assert "all training samples are of one class" in output and "no training sample" not in output, output
    from_one = write_named(folder / "from-one", ["N/A", "cat", "dog"], only=["cat", "dog"])
    output = run(training(from_one, folder / "from-one-run", "--max-steps", 1), 2)
    assert '1 of 3 classes has no training sample (0 "N/A")' in output and "of one class" not in output, output
    output = run(training(write_named(folder / "many", [str(i) for i in range(40)], only=["7"], named=False), folder / "many-run", "--max-steps", 1))
    assert "39 of 40 classes have no training sample (0, 1, 2, 3, 4, 5, 6, 8 and 31 more)" in output and "of one class" in output, output
    # One split counts from 0, the other from 1.
    emnist = write_named(folder / "emnist", CLASSES, only=CLASSES[:3], named=False)
    write_named(emnist, CLASSES, split="val", only=CLASSES[1:], named=False)
    output = run(training(emnist, folder / "emnist-run", "--max-steps", 1), 2)
    assert "validation has samples of 1 class without a training sample (3); check that both splits" in output, output
    output = run(training(write_named(folder / "all", CLASSES), folder / "all-run", "--max-steps", 1))
    assert "warning" not in output.replace("--augment", ""), output


if __name__ == "__main__":
    main([names_that_are_no_utf8_are_matched, eval_matches_other_orders_of_the_classes, eval_takes_some_of_the_classes, eval_refuses_classes_that_it_cannot_match,
          without_names_on_one_side_numbers_decide_and_a_note_says_so, evaluations_of_a_run_match_names,
          a_run_resumes_with_other_numbers_as_if_nothing_had_changed, a_run_does_not_resume_with_other_classes,
          initial_weights_with_their_head_keep_their_classes, names_that_do_not_fit_their_number_are_refused,
          a_start_warns_of_classes_that_teach_nothing])
