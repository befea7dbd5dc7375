#!/usr/bin/env python3
"""Tests evaluations: what eval writes about classes and samples, and images of another size than in training."""

import csv

from harness import *  # noqa: F403

NAMES = ["plain", "comma, here", 'a "quote"', "line\nbreak", "ünïcode", " space", "=1+1", "'", "eight", "nine"]
SAMPLES = 37


def named(data):
    """Gives the classes names, some of which CSV must quote."""
    for shard in data.glob("*.h5"):
        with h5py.File(shard, "r+") as file:
            file.attrs["class_names"] = np.array(NAMES, h5py.string_dtype())
    return data


def trained(folder):
    """A data set with an odd number of samples to evaluate, and the arguments that evaluate a network trained a little on it."""
    data = write_shards(folder / "data")
    named(write_shards(data, samples=SAMPLES, shards=3, split="val", seed=3))
    if not (folder / "run").exists():
        run(train_args(data, folder / "run", "--max-steps", 12))
    return data, ["eval", "--checkpoint", latest(folder / "run"), "--data", data, "--json"]


def on(data, args):
    """The arguments, for split train of another data set."""
    at = args.index("--data") + 1
    return [*args[:at], data, *args[at + 1:], "--split", "train"]


def labels_of(data, split="val"):
    """Of the whole split, in the order of its shards."""
    found = []
    for shard in sorted(data.glob(f"{split}-*.h5")):
        with h5py.File(shard) as file:
            found.append(file["labels"][...])
    return np.concatenate(found)


def read_matrix(path):
    """Titles of the columns and of the rows, and the counts."""
    with open(path, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    return header[1:], [row[0] for row in rows], np.array([[int(count) for count in row[1:]] for row in rows])


def results_agree_with_each_other(folder, env=None, device="cpu"):
    data, args = trained(folder)
    labels = labels_of(data)
    for ranks, batch in ((1, 64), (1, 5), (2, 4), (3, 7), (3, 1)):
        csv_file, h5_file = folder / f"{ranks}-{batch}.csv", folder / f"{ranks}-{batch}.h5"
        args_now = [*args, "--batch-size", batch, "--device", device]
        result = json.loads(run([*args_now, "--per-class", "--confusion", csv_file, "--predictions", h5_file], ranks, env).splitlines()[-1])
        classes = result.pop("classes")
        plain = json.loads(run(args_now, ranks, env).splitlines()[-1])
        assert {**result, "seconds": 0} == {**plain, "seconds": 0} and result["samples"] == SAMPLES, (result, plain)

        with h5py.File(h5_file) as file:
            logits = file["logits"][...]
            assert logits.dtype == "f4" and logits.shape == (SAMPLES, 10), logits
            assert file["labels"].dtype == "i8" and (file["labels"][...] == labels).all()
            assert file["sample"].dtype == "i8" and (file["sample"][...] == np.arange(SAMPLES)).all()
            attributes = dict(file.attrs)
        assert [name.decode() for name in attributes.pop("class_names")] == NAMES
        identity = json.loads(run(["inspect", data, "--json"]))["splits"]
        identity = next(split["identity"] for split in identity if split["split"] == "val")
        assert f'{attributes.pop("data_identity"):08x}' == identity
        assert {name: value.decode() if isinstance(value, bytes) else value for name, value in attributes.items()} == {
            "format": "lockstep-predictions", "version": 1, "checkpoint": "step-00000012.h5", "model": "mini-resnet", "split": "val",
            "classes": 10, "weights": "current"}, attributes

        exact = logits.astype("f8")
        largest = exact.max(1)
        losses = np.log(np.exp(exact - largest[:, None]).sum(1)) + largest - exact[np.arange(SAMPLES), labels]
        assert abs(losses.mean() - result["loss"]) < 1e-6, (losses.mean(), result)

        columns, rows, matrix = read_matrix(csv_file)
        # As a spreadsheet must show them: docs/commands.md.
        shown = [{"line\nbreak": "line\\x0abreak", "=1+1": "'=1+1"}.get(name, name) for name in NAMES]
        assert columns == rows == shown, (columns, rows)
        counted = np.zeros((10, 10), int)
        np.add.at(counted, (labels, logits.argmax(1)), 1)
        assert (matrix == counted).all() and matrix.sum() == SAMPLES, (matrix, counted)
        assert abs(np.trace(matrix) / SAMPLES - result["top1"]) < 1e-12, (matrix, result)

        assert [of["label"] for of in classes] == list(range(10)) and [of["name"] for of in classes] == NAMES, classes
        assert [of["samples"] for of in classes] == matrix.sum(1).tolist(), classes
        for of, row in zip(classes, matrix):
            assert of["top1"] == (row[of["label"]] / row.sum() if row.sum() else None), (of, row)
        weighted = sum(of["samples"] * (of["top1"] or 0) for of in classes)
        assert abs(weighted / SAMPLES - result["top1"]) < 1e-12, (classes, result)


def results_agree_on_a_gpu(folder):
    module = os.environ.get("LOCKSTEP_TEST_HOST_MODULE")
    if not module or not pathlib.Path(module).exists():
        raise Skipped("the host module was not built")
    results_agree_with_each_other(folder, {"LOCKSTEP_MODULE_PATH": module, "HOST_MODULE_SHARED": "1"}, "cuda")


def files_do_not_depend_on_the_number_of_ranks(folder):
    """Also with batches that the number of ranks makes smaller, and other numbers of threads."""
    _, args = trained(folder)
    for batch in (5, 64):
        written = []
        for ranks in (1, 2, 3, 4):
            files = [folder / "c.csv", folder / "p.h5"]
            run([*args, "--batch-size", batch, "--confusion", files[0], "--predictions", files[1], "--overwrite"], ranks)
            written.append([file.read_bytes() for file in files])
        assert all(files == written[0] for files in written[1:]), [files == written[0] for files in written]


def a_table_shows_every_class(folder):
    """A network with more outputs than the data has classes, and data without names."""
    data = write_shards(folder / "data", samples=64, classes=3)
    write_shards(data, samples=11, shards=1, split="val", classes=2, seed=4)
    run([*train_args(data, folder / "run", "--max-steps", 2), "--classes", 12])
    command = ["eval", "--checkpoint", latest(folder / "run"), "--data", data]
    said, first, *table = run([*command, "--per-class", "--confusion", folder / "c.csv"]).rstrip().split("\n")
    assert [said, first] == run(command).rstrip().split("\n") and first.startswith("11 samples: loss "), first
    assert said == "input: pixels of 12x12; evaluation takes them whole", said
    blank, header, *rows = table
    assert not blank and header.split() == ["class", "samples", "top-1"], table
    assert [row.split()[0] for row in rows] == [str(label) for label in range(12)], rows
    counts = np.bincount(labels_of(data), minlength=12)
    assert [int(row.split()[1]) for row in rows] == counts.tolist(), rows
    assert all(row.endswith(" -") == (count == 0) and (count == 0 or row.endswith(" %")) for row, count in zip(rows, counts)), rows
    assert len({len(row) for row in [header, *rows]}) == 1, table
    columns, titles, matrix = read_matrix(folder / "c.csv")
    assert columns == titles == [str(label) for label in range(12)] and matrix.shape == (12, 12), (columns, matrix)


def paths_that_cannot_be_written_end_all_ranks(folder):
    _, args = trained(folder)
    there = folder / "there"
    there.mkdir()
    (there / "old").write_text("old")
    before = sorted(there.iterdir())
    cases = [("--predictions", there / "no" / "p.h5", CANNOT_WRITE, "No such file"), ("--confusion", there / "no" / "c.csv", CANNOT_WRITE, "No such file"),
             ("--predictions", there, CANNOT_WRITE, "is a directory"), ("--confusion", there, CANNOT_WRITE, "is a directory"),
             ("--predictions", there / "old", USAGE, "--overwrite"), ("--confusion", there / "old", USAGE, "--overwrite")]
    for ranks in (1, 3):
        for option, path, status, text in cases:
            output = run([*args, option, path, *(["--overwrite"] if status != USAGE else [])], ranks, expect=status)
            assert text in output and str(path) in output and output.count("error:") == 1, output
        output = run([*args, "--predictions", there / "x", "--confusion", f"{there}/../there/x"], ranks, expect=USAGE)
        assert "two paths" in output, output
        # An error of a later batch, here of the last rank's, leaves nothing either.
        broken = write_broken_shards(folder / f"broken-{ranks}")
        output = run([*on(broken, args), "--predictions", there / "p.h5", "--confusion", there / "c.csv"], ranks, expect=BAD_INPUT)
        assert "sample 7" in output, output
        assert sorted(there.iterdir()) == before and (there / "old").read_text() == "old", list(there.iterdir())
    # What is read is not replaced.
    checkpoint, data = pathlib.Path(args[args.index("--checkpoint") + 1]), pathlib.Path(args[args.index("--data") + 1])
    for path, what in ((checkpoint.resolve(), "the checkpoint itself"), (next(data.glob("*.h5")), "a file of --data itself")):
        kept = path.read_bytes()
        for option in ("--confusion", "--predictions"):
            assert what in run([*args, option, path, "--overwrite"], expect=USAGE)
        assert path.read_bytes() == kept
    run([*args, "--predictions", there / "old", "--overwrite"], 2)
    with h5py.File(there / "old") as file:
        assert len(file["labels"]) == SAMPLES


def a_full_disk_leaves_no_file(folder):
    _, args = trained(folder)
    many = write_shards(folder / "many", samples=3000)
    for option, name, taken in (("--predictions", "p.h5", 40000), ("--confusion", "c.csv", 65536)):
        with small_disk(folder / "disk", "64k") as disk:
            (disk / "taken").write_bytes(bytes(taken))
            output = run([*on(many, args), option, disk / name], 2, expect=CANNOT_WRITE)
            assert name in output, output
            assert [path.name for path in disk.iterdir()] == ["taken"], list(disk.iterdir())
        (folder / "disk").rmdir()


def loss_of(args, ranks=1, env=None):
    return json.loads(run([*args, "--json"], ranks, env).splitlines()[-1])["loss"]


@more_in_soak
def evaluations_may_use_larger_images_than_training(folder):
    """The evaluations of a run are those of eval, which takes the run's size, and do not change what is trained."""
    data = write_shards(folder / "data")
    write_shards(data, samples=SAMPLES, shards=1, split="val", seed=3)
    module = os.environ.get("LOCKSTEP_TEST_HOST_MODULE")
    gpu = {"LOCKSTEP_MODULE_PATH": module, "HOST_MODULE_SHARED": "1"}
    cases = [(1, [], None), (2, [], None), (3, ["--shard", "full"], None)]
    if module and pathlib.Path(module).exists():
        cases += [(1, ["--device", "cuda"], gpu), (2, ["--device", "cuda", "--comm", "mpi"], gpu)]
    for case, (ranks, more, env) in enumerate(few(cases, 2, -1)):
        small, large = folder / f"small-{case}", folder / f"large-{case}"
        args = ["--image-size", 8, "--epochs", 1, *more]
        run(train_args(data, small, *args), ranks, env)
        output = run(train_args(data, large, *args, "--eval-size", 12), ranks, env)
        assert "input 3x8x8" in output and "evaluation: input 3x12x12" in output, output
        assert tensors(latest(small)) == tensors(latest(large)), case
        (event,) = events(large, "eval")
        evaluate = ["eval", "--checkpoint", latest(large), "--data", data, *more[:2] * (env is not None)]
        expected = loss_of(evaluate, ranks, env)
        assert abs(event["loss"] - expected) < 1e-6, (case, event, expected)
        assert loss_of([*evaluate, "--image-size", 12], ranks, env) == expected
        assert loss_of([*evaluate, "--image-size", 8], ranks, env) != expected
        (event,) = events(small, "eval")
        assert abs(event["loss"] - loss_of([*evaluate, "--image-size", 8], ranks, env)) < 1e-6, (case, event)


def the_size_of_evaluations_may_change_when_a_run_resumes(folder):
    data = write_shards(folder / "data")
    write_shards(data, samples=SAMPLES, shards=1, split="val", seed=3)
    args = ["--image-size", 8, "--epochs", 2]
    run(train_args(data, folder / "whole", *args, "--eval-size", 12))
    for steps in (13, 31, 0):
        output = run(train_args(data, folder / "parts", *args, "--eval-size", 12, "--max-steps", steps))
        assert "--eval-size was" not in output, output
    assert_same_run(folder / "whole", folder / "parts")
    run(train_args(data, folder / "changed", *args, "--max-steps", 24))
    output = run(train_args(data, folder / "changed", *args, "--eval-size", 12))
    assert "--eval-size was 0, is 12 now" in output, output
    assert events(folder / "changed", "eval")[-1]["loss"] == events(folder / "whole", "eval")[-1]["loss"]


def sizes_that_do_not_fit_are_refused_at_the_start(folder):
    data = write_shards(folder / "data")
    write_shards(data, samples=9, shards=1, split="val")
    for ranks in (1, 3):
        for model in ("mlp", "simple-cnn"):
            args = [*train_args(data, folder / "run", "--image-size", 8, "--eval-size", 12)]
            args[args.index("mini-resnet")] = model
            output = run(args, ranks, expect=USAGE)
            assert f"--eval-size 12 does not go with {model}" in output and "fc1.weight is" in output and "8x8" in output, output
        output = run(train_args(data, folder / "run", "--image-size", 8, "--eval-size", 13), ranks, expect=USAGE)
        assert "split val" in output and "12x12" in output and "--eval-size" in output, output
        for option, value in (("--eval-crop-ratio", 0.875), ("--eval-resize", 12), ("--eval-interpolation", "bicubic")):
            output = run(train_args(data, folder / "run", option, value), ranks, expect=USAGE)
            assert f"{option} {value} does not apply" in output and "stored as pixels of 12x12" in output, output


def write_jpeg_shards(data):
    """40 x 50 pixels of noise, in 4 classes."""
    try:
        from PIL import Image
    except ImportError as missing:
        raise Skipped(missing)
    import io
    random = np.random.default_rng(5)
    data.mkdir()
    for split, samples in (("train", 32), ("val", 11)):
        files = []
        for _ in range(samples):
            image = io.BytesIO()
            Image.fromarray(random.integers(0, 256, (40, 50, 3), "u1")).save(image, "JPEG")
            files.append(image.getvalue())
        with h5py.File(data / f"{split}-00000-of-00001.h5", "w") as file:
            file["encoded"] = np.frombuffer(b"".join(files), "u1")
            file["offsets"] = np.cumsum([0] + [len(data) for data in files]).astype("u8")
            file["labels"] = random.integers(0, 4, samples)
            file.attrs["classes"] = 4
    return data


def evaluations_of_jpeg_images_are_those_of_the_run(folder):
    """By the ratio and by the short side that it gives, with both filters, and on ranks."""
    data = write_jpeg_shards(folder / "data")
    sizes = ["--image-size", 16, "--eval-size", 24]
    for case, options in enumerate((["--eval-crop-ratio", 0.5], ["--eval-resize", 31, "--eval-interpolation", "bicubic"])):
        directory = folder / f"run-{case}"
        output = run(train_args(data, directory, "--epochs", 1, *sizes, *options), ranks=2)
        said = "evaluation resizes the short side to " + ("48 (bilinear), crops 24x24", "31 (bicubic), crops 24x24")[case]
        assert f"input: JPEG files; training resizes the short side to the crop's, pads by 2 and crops 16x16 at random; {said}" in output, output
        (event,) = events(directory, "eval")
        evaluate = ["eval", "--checkpoint", latest(directory), "--data", data]
        assert f"input: JPEG files; {said}\n" in run(evaluate)
        losses = [loss_of([*evaluate, *more]) for more in (
            [], options, ["--eval-resize", (48, 31)[case]], ["--eval-resize", (48, 31)[case], "--eval-interpolation", "bilinear"],
            ["--eval-crop-ratio", 0.875], ["--eval-interpolation", "bicubic"])]
        assert abs(event["loss"] - losses[0]) < 1e-6 and losses[0] == losses[1] == losses[2], losses
        assert (losses[3] == losses[0]) == (case == 0) and (losses[5] == losses[0]) == (case == 1) and losses[4] != losses[0], losses
    output = run([*evaluate, "--image-size", 32], expect=USAGE)
    assert "--eval-resize 31 is smaller than images of 32x32" in output, output
    output = run([*evaluate, "--eval-resize", 40, "--eval-crop-ratio", 0.5], expect=USAGE)
    assert "--eval-crop-ratio 0.5 and --eval-resize 40" in output, output


def how_a_run_resized_is_not_dropped_in_silence(folder):
    """Evaluations on pixels of a network that was trained on JPEG images."""
    data = write_jpeg_shards(folder / "data")
    pixels = write_shards(folder / "pixels", samples=11, shards=1, shape=(24, 24, 3), classes=4, split="val")
    for case, (options, named) in enumerate((([], "--eval-crop-ratio 0.875"), (["--eval-resize", 29], "--eval-resize 29"))):
        directory = folder / f"run-{case}"
        run(train_args(data, directory, "--max-steps", 1, "--image-size", 24, *options))
        evaluate = ["eval", "--checkpoint", latest(directory), "--data", pixels]
        output = run(evaluate)
        assert f"warning: {named} of the run" in output and "pixels of 24x24" in output and "results may differ" in output, output
        output = run([*evaluate, "--eval-resize", 29], expect=USAGE)
        assert "--eval-resize 29 does not apply" in output and "24x24" in output, output
    run(train_args(write_shards(folder / "square", shape=(24, 24, 3), classes=4), folder / "own", "--max-steps", 1))
    output = run(["eval", "--checkpoint", latest(folder / "own"), "--data", pixels])
    assert "does not apply" not in output and "input: pixels of 24x24; evaluation takes them whole" in output, output


def random_areas_of_small_pixels_are_warned_of(folder):
    data = write_shards(folder / "data", shape=(24, 24, 3))
    args = train_args(data, folder / "run", "--max-steps", 1)
    at = args.index("crop-flip")
    args[at:at + 3] = ["resized-crop"]  # without --crop-padding
    assert "makes training images of 24x24 from pixels of 24x24" in run(args)
    args[args.index("--run-dir") + 1] = folder / "small"
    assert "makes training images" not in run([*args, "--image-size", 21])


if __name__ == "__main__":
    main([results_agree_with_each_other, results_agree_on_a_gpu, files_do_not_depend_on_the_number_of_ranks, a_table_shows_every_class,
          paths_that_cannot_be_written_end_all_ranks, a_full_disk_leaves_no_file, evaluations_may_use_larger_images_than_training,
          the_size_of_evaluations_may_change_when_a_run_resumes, sizes_that_do_not_fit_are_refused_at_the_start,
          evaluations_of_jpeg_images_are_those_of_the_run, how_a_run_resized_is_not_dropped_in_silence,
          random_areas_of_small_pixels_are_warned_of])
