#!/usr/bin/env python3
"""Tests the program's command line: help, errors, packing, benchmarks and inspection."""

import difflib
import gzip
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

from cli_harness import check, failures, finish

LOCKSTEP = sys.argv[1]
FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")


def expect(condition, what):
    print(("ok      " if condition else "FAILED  ") + what, flush=True)
    if not condition:
        failures.append(what)


def write_idx(folder, part, count, side):
    images = bytes((s * 7 + i) % 256 for s in range(count) for i in range(side * side))
    labels = bytes(s % 10 for s in range(count))
    with gzip.open(folder / f"{part}-images-idx3-ubyte.gz", "wb", compresslevel=1) as file:
        file.write(struct.pack(">4I", 0x803, count, side, side) + images)
    with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz", "wb") as file:
        file.write(struct.pack(">2I", 0x801, count) + labels)


def help_and_usage():
    check(LOCKSTEP, ["--version"], 0, prints=["lockstep "])
    check(LOCKSTEP, ["--help"], 0, prints=["train", "eval", "pack", "inspect", "export", "watch", "report", "compare", "sweep", "restart", "export-metrics", "bench", "scale", "doctor", "usage:"])
    for command in ("train", "eval", "pack", "inspect", "export", "watch", "report", "compare", "sweep", "restart", "export-metrics", "bench", "scale", "doctor"):
        check(LOCKSTEP, [command, "--help"], 0, prints=["lockstep " + command, "--"])
        check(LOCKSTEP, [command, "--help", "all"], 0, prints=["lockstep " + command, "--"])
    top = pathlib.Path(__file__).parents[2]
    page = subprocess.run([top / "scripts/options-page", LOCKSTEP], capture_output=True, text=True, timeout=60).stdout
    kept = (top / "docs/options.md").read_text()
    expect(page.count("\n  --") > 90 and page == kept, "docs/options.md matches the output of scripts/options-page")
    print("\n".join(difflib.unified_diff(kept.splitlines(), page.splitlines(), "docs/options.md", "scripts/options-page", n=0, lineterm="")))
    for ranks in (None, 3):
        check(LOCKSTEP, [], 64, ranks, says=["lockstep --help", *(f"\n  {name} " for name in ("train", "eval", "pack", "inspect", "export", "watch", "report", "compare", "sweep", "restart", "export-metrics", "bench", "scale", "doctor"))])
    said = subprocess.run([LOCKSTEP], capture_output=True, text=True, timeout=60).stderr
    tries = re.findall(r"^try: lockstep (.*)$", said, re.M)
    expect(len(tries) == 1, f"one suggested command: {said}")
    with tempfile.TemporaryDirectory() as folder:
        tried = subprocess.run([LOCKSTEP, *tries[0].split()], cwd=folder, capture_output=True, text=True, timeout=300)
        expect(tried.returncode == 0 and "finished at step 20" in tried.stdout + tried.stderr, f"the suggested command trains: {tried}")
    check(LOCKSTEP, ["trian"], 64, says=["did you mean train?"])
    check(LOCKSTEP, ["wibble"], 64, says=["train, eval, pack"])
    for ranks in (None, 3):
        check(LOCKSTEP, ["pack"], 64, ranks, says=["--from is missing"])
        check(LOCKSTEP, ["pack", "--form", "mnist"], 64, ranks, says=["did you mean --from?"])
        check(LOCKSTEP, ["pack", "--from", "mnst"], 64, ranks, says=["mnist, cifar, folder, tar, webdataset"])


def packing(folder):
    source = folder / "in"
    source.mkdir()
    write_idx(source, "train", 500, 9)
    write_idx(source, "t10k", 60, 9)
    pack = ["pack", "--from", "mnist", "--input", source, "--output"]
    printed = check(LOCKSTEP, [*pack, folder / "one", "--shards", 5, "--json"], 0)
    result = json.loads(printed)
    expect(result["samples"] == 560 and result["shards"] == 6 and result["classes"] == 10, "pack --json")
    expect(result["bytes"] == sum(f.stat().st_size for f in (folder / "one").glob("*.h5")), "pack --json bytes")
    check(LOCKSTEP, [*pack, folder / "three", "--shards", 5], 0, ranks=3, prints=["500 samples in 5 shards"])
    for file in (folder / "one").iterdir():
        expect(file.read_bytes() == (folder / "three" / file.name).read_bytes(), f"{file.name} on 1 and 3 ranks")
    check(LOCKSTEP, [*pack, folder / "other", "--shards", 5, "--seed", 1], 0)
    first = "train-00000-of-00005.h5"
    expect((folder / "one" / first).read_bytes() != (folder / "other" / first).read_bytes(), "another seed, another order")
    for ranks in (None, 3):
        check(LOCKSTEP, [*pack, folder / "one"], 64, ranks, says=["--overwrite"])
        check(LOCKSTEP, [*pack, "/proc/nowhere"], 73, ranks, says=["/proc/nowhere"])
        check(LOCKSTEP, ["pack", "--from", "cifar", "--input", source, "--output", folder / "x"], 66, ranks,
              says=["data_batch_1.bin"])
    check(LOCKSTEP, [*pack, folder / "x", "--shards", 2, "--shard-mb", 2], 64, says=["--shard-mb"])
    check(LOCKSTEP, [*pack, folder / "x", "--image-size", 8], 64, says=["--from folder"])
    torn = source / "train-images-idx3-ubyte.gz"
    torn.write_bytes(torn.read_bytes()[:-20])
    for ranks in (None, 3):
        check(LOCKSTEP, [*pack, folder / "torn"], 65, ranks, says=[torn.name])
    expect(not (folder / "torn").exists(), "a torn source writes nothing")


def benchmarking(folder):
    small = ["--width", 8, "--image-size", 16, "--batch-size", 4, "--steps", 2, "--warmup", 1]
    for ranks in (None, 2):
        result = json.loads(check(LOCKSTEP, ["bench", "step", *small, "--json"], 0, ranks))
        expect({"images_per_second", "step_seconds_median", "peak_rss_bytes", "precision", "threads", "engine"} <= result.keys(),
               "bench step --json")
        seconds = result["measured_seconds"]
        # Of two steps, p10 is the shorter and p90 the longer.
        expect(abs(seconds - result["step_seconds_p10"] - result["step_seconds_p90"]) < 1e-9 * seconds and result["measured_samples"] == 2 * 4 * (ranks or 1)
               and result["definition"] == "samples by total time" and result["images_per_second"] == result["measured_samples"] / seconds,
               "bench step counts samples by total time")
        rows = json.loads(check(LOCKSTEP, ["bench", "allreduce", "--steps", 1, "--warmup", 0, "--json"], 0, ranks))["rows"]
        expect(all(row["seconds_median"] > 0 for row in rows), "bench allreduce --json")
        result = json.loads(check(LOCKSTEP, ["bench", "loader", "--data", folder / "one", "--steps", 2, "--json"], 0, ranks))
        expect({(row["reader"], row["files_in"]) for row in result["rows"] if row["images_per_second"] > 0} >= {("loader", "cache"), ("loader", "disk")},
               "bench loader --json")
        result = json.loads(check(LOCKSTEP, ["bench", "checkpoint", *small, "--directory", folder, "--json"], 0, ranks))
        expect(result["benchmark"] == "checkpoint", "bench checkpoint --json")
    check(LOCKSTEP, ["bench", "step", *small], 0, prints=["images/s", "mini-resnet"])
    result = json.loads(check(LOCKSTEP, ["bench", "step", *small, "--bucket-mb", 0.01, "--json"], 0, 2))
    expect(result["hidden_communication_seconds"] > 0, f"bench step: hidden communication: {result}")
    for group in ("1", "2"):
        result = json.loads(check(LOCKSTEP, ["bench", "step", *small, "--shard", "hybrid", "--shard-group", group, "--json"], 0, 2))
        expect((result["shard"], result["shard_group"]) == ("hybrid", int(group)), f"a step in groups of {group}: {result}")
        expect(result["hidden_communication_seconds"] is None, "bench step --shard hybrid: hidden communication is unknown")
    check(LOCKSTEP, ["bench", "step", *small, "--shard", "full", "--shard-group", "2"], 64, says=["belongs to --shard hybrid"])
    result = json.loads(check(LOCKSTEP, ["bench", "ops", *small, "--json"], 0))
    kinds = {kind["kind"]: kind for kind in result["kinds"]}
    expect(kinds["convolution"]["steps"] == 15 and kinds["convolution"]["seconds"] > 0, "bench ops counts convolutions")
    expect(abs(sum(kind["seconds"] for kind in result["kinds"]) - result["seconds"]) < 1e-9, "bench ops: the times of the kinds add up to the total")
    result = json.loads(check(LOCKSTEP, ["bench", "step", *small, "--input", "batch", "--json"], 0))
    expect(result["input"] == "batch" and result["images_per_second"] > 0, "bench step --input batch --json")


def listing_a_step(network):
    """What a rank computes and sends can be read from the list of ops."""
    command = ["inspect", *network, "--step", "--ranks", "4", "--shard-group", "2"]
    listed = {mode: json.loads(check(LOCKSTEP, [*command, "--shard", mode, "--json"], 0))["step"]["ops"]
              for mode in ("none", "optimizer", "grad", "full", "hybrid")}
    computed = {mode: [op for op in ops if "collective" not in op and op["op"] != "update"] for mode, ops in listed.items()}
    names = [(op["op"], op["of"]) for op in computed["none"]]
    expect(names[0] == ("forward", "flatten_1") and ("weight gradient", "fc1") in names, f"the ops of an mlp: {names}")
    expect(all([(op["op"], op["of"]) for op in ops] == names for ops in computed.values()), "all modes compute the same ops")
    for mode, ops in listed.items():
        written = {"input_0"}
        for index, op in enumerate(ops):
            expect(set(op["reads"]) <= written, f"{mode}: op {index} reads what an earlier op wrote: {op}")
            for value in op["writes"]:
                last = max((i for i, other in enumerate(ops) if value["value"] in other["reads"]), default=0)
                expect(value["last_read_by"] == last, f"{mode}: {value} is last read by op {last}")
                written.add(value["value"])
        sent = [(op["op"], op["collective"], op["of"]) for op in ops if "collective" in op]
        kinds = {"all-reduce"} if mode == "none" else {"all-gather", "reduce-scatter", "all-reduce"}
        expect({kind for _, kind, _ in sent} == kinds, f"{mode}: {sent}")
        for starts, waits in (("start of a reduction", "wait for a reduction"), ("start of a gather", "wait for a gather")):
            started = [of for op, _, of in sent if op == starts]
            awaited = [of for op, _, of in sent if op == waits]
            expect(started == awaited and (started or mode == "none"), f"{mode}: each {starts} is awaited: {sent}")
        # A unit is updated once, when its sums have arrived.
        last = "wait for a reduction over replicas" if mode == "hybrid" else "wait for a reduction"
        for index, op in enumerate(ops):
            if op["op"] == "update":
                expect(any(before["op"] == last and before["of"].startswith(op["of"]) for before in ops[:index]), f"{mode}: {op} before {last}")
        updated = [op["of"] for op in ops if op["op"] == "update"]
        expect(updated == sorted(set(updated), key=lambda of: int(of.split()[1])) and updated, f"{mode}: each unit is updated once: {updated}")
    values = json.loads(check(LOCKSTEP, [*command, "--json"], 0))["parameters"]
    for mode, ops in listed.items():
        sent = sum(op["bytes"] for op in ops if op["op"] == "start of a reduction")
        expect(0 <= sent - 4 * values < 0.001 * sent, f"{mode}: all gradients are reduced once: {sent} of {4 * values} bytes")
    summed = json.loads(check(LOCKSTEP, ["inspect", "--model", "mini-resnet", "--image-size", "32", "--step", "--batch-norm", "sync", "--json"], 0))["step"]["ops"]
    norms = [op for op in summed if re.search(r"bn\d|downsample\.1", op["of"])]
    expect(len(norms) > 20 and all(op.get("sums_over_ranks", False) == (op in norms and op["op"] != "recompute") for op in summed),
           f"synchronised norms sum over ranks in forward and backward: {norms}")
    # An update that depends on all gradients follows a decision, and only the last micro-step reduces held gradients.
    decided = json.loads(check(LOCKSTEP, [*command, "--accumulate", "2", "--shard", "none", "--json"], 0))["step"]["ops"]
    expect([op["op"] for op in decided[-2:]] == ["decision on the update", "update"], f"the end of an accumulated step: {decided[-3:]}")
    started = [op for op in decided if op["op"] == "start of a reduction"]
    expect(all(op.get("in_last_micro_step") for op in started[:-1]) and started[-1]["of"].endswith("the tail"), f"reductions: {started}")
    check(LOCKSTEP, [*command, "--precision", "fp16"], 64, says=["--step with --precision fp16"])
    print_of = check(LOCKSTEP, [*command, "--shard", "full"], 0)
    expect("start the all-gather of unit 0" in print_of and "weight gradient fc1" in print_of, f"a table: {print_of}")


def inspecting(folder):
    data = folder / "one"
    printed = json.loads(check(LOCKSTEP, ["inspect", data, "--verify", "--json"], 0))
    # A path may contain any bytes, JSON only valid UTF-8.
    odd = os.fsencode(folder) + b"/\xff.h5"
    os.link(next(data.glob("train*.h5")), odd)
    answer = subprocess.run([LOCKSTEP, b"inspect", odd, b"--json"], capture_output=True, timeout=60)
    expect(answer.returncode == 0 and json.loads(answer.stdout)["path"].endswith("/\ufffd.h5") and answer.stdout.isascii(), "inspect of a path that is not UTF-8")
    # Names cannot control the terminal: C0 and C1 sequences, and a change of direction.
    answer = subprocess.run([LOCKSTEP, "inspect", "/nowhere/é\x1b]0;x\x07\x9b5m\u202e".encode() + b"\xff"], capture_output=True, timeout=60)
    expect(answer.returncode == 66 and "/nowhere/é\\x1b]0;x\\x07\\xc2\\x9b5m\\xe2\\x80\\xae\\xff".encode() in answer.stderr, f"a hostile path in an error: {answer}")
    expect([s["samples"] for s in printed["splits"]] == [500, 60], "inspect counts samples")
    expect(all(s["verified"] for s in printed["splits"]), "inspect verifies")
    shard = data / "train-00002-of-00005.h5"
    check(LOCKSTEP, ["inspect", shard, data], 0, prints=["100 samples", "9x9x1", "data set"])
    check(LOCKSTEP, ["inspect"], 64, says=["nothing to inspect"])
    scale = ["scale", "--model", "resnet50", "--nodes", 64, "--gpus-per-node", 8, "--images-per-second", 3000]
    check(LOCKSTEP, [*scale, "--link", "400gbit"], 0, prints=["predicted, not measured", "64 nodes with 8 ranks each", "hybrid", "recommended: --bucket-mb"])
    rows = {rate: json.loads(check(LOCKSTEP, [*scale, "--link", rate, "--json"], 0))["rows"][0] for rate in ("400gbit", "1gbit")}
    expect(rows["400gbit"]["efficiency"] > 0.95 > 0.5 > rows["1gbit"]["efficiency"], f"efficiency falls with the link: {rows}")
    check(LOCKSTEP, [*scale, "--link", "1gbit"], 0, prints=["with a larger global batch: --accumulate", "warning: --shard full over all 512 ranks takes",
                                                       "--shard hybrid in groups of 8 takes"])
    few = ["scale", "--model", "resnet50", "--nodes", 4, "--gpus-per-node", 8, "--images-per-second", 3000, "--link", "1gbit"]
    expect("warning" not in check(LOCKSTEP, few, 0), "no warning for few ranks")
    check(LOCKSTEP, [*scale, "--link", "fast"], 64, says=["--link fast is no rate", "400gbit"])
    check(LOCKSTEP, scale, 64, says=["--link is missing"])
    check(LOCKSTEP, [*scale, "--link", "1gbit", "--shard-group", 3], 64, says=["--shard-group 3 does not divide 512 ranks"])
    check(LOCKSTEP, ["inspect", data, "--model", "mlp"], 64)
    check(LOCKSTEP, ["inspect", "--model", "resnet51"], 64, says=["resnet50"])
    check(LOCKSTEP, ["inspect", "--model", "resnet50"], 0, prints=["25557032"])
    options = ["--model", "mlp", "--width", "512", "--image-size", "32", "--batch-size", "4", "--optimizer", "adam"]
    table = {ranks: {row["shard"]: row for row in json.loads(check(
        LOCKSTEP, ["inspect", *options, "--ranks", ranks, "--json"], 0))["memory"]} for ranks in ("2", "4")}
    for ranks, rows in table.items():
        totals = [rows[mode]["total_bytes"] for mode in ("none", "optimizer", "grad", "full")]
        expect(totals == sorted(totals, reverse=True), f"each sharding mode needs less memory than the one before: {totals}")
    expect(table["4"]["full"]["total_bytes"] < table["2"]["full"]["total_bytes"], "with --shard full, more ranks need less memory each")
    expect(table["4"]["none"]["total_bytes"] == table["2"]["none"]["total_bytes"], "without sharding, memory does not depend on the number of ranks")
    in_bf16 = {row["shard"]: row for row in json.loads(check(
        LOCKSTEP, ["inspect", *options, "--ranks", "4", "--precision", "bf16", "--reduce-dtype", "bf16", "--json"], 0))["memory"]}
    for mode in ("none", "optimizer", "grad", "full"):
        ratio = in_bf16[mode]["sent_bytes_per_step"] / table["4"][mode]["sent_bytes_per_step"]
        expect(0.49 < ratio < 0.51, f"16 bits send half of fp32's bytes with --shard {mode}: {ratio}")
    expect(in_bf16["grad"]["parameter_bytes"] < 0.8 * table["4"]["grad"]["parameter_bytes"],
           "--shard grad in bf16: a full bf16 copy and a quarter of the fp32 parameters")
    check(LOCKSTEP, ["inspect", *options, "--ranks", "4", "--param-dtype", "bf16"], 64, says=["--precision fp32"])
    for mode, row in table["4"].items():
        alone = json.loads(check(LOCKSTEP, ["inspect", *options, "--ranks", "4", "--shard", mode, "--json"], 0))["memory"]
        expect(alone == [row], f"--shard {mode} prints only its row of the table: {alone}, {row}")
        expect((row["gathered_unit_bytes"] > 0) == (mode in ("grad", "full")), f"gathered units with --shard {mode}: {row}")
        expect(row["activation_bytes"] == table["4"]["none"]["activation_bytes"], "activations are the same in all modes")
        parts = ("parameter_bytes", "gradient_bytes", "optimizer_bytes", "copy_bytes", "activation_bytes", "gathered_unit_bytes")
        expect(row["total_bytes"] == sum(row[part] for part in parts), f"the total is the sum of the columns: {row}")
    # Only GPUs have these precisions, and processors without AVX-512 no bf16. Without a GPU, parameters and traffic are known, but activations are not.
    for precision, like in (("fp16", "bf16"), ("tf32", "fp32")):
        rows = {name: json.loads(check(LOCKSTEP, ["inspect", *options, "--ranks", "4", "--shard", "full", "--precision", name, "--json"], 0))["memory"][0]
                for name in (precision, like)}
        known = ("parameter_bytes", "gradient_bytes", "optimizer_bytes", "sent_bytes_per_step")
        expect(all(abs(rows[precision][part] / rows[like][part] - 1) < 0.01 for part in known), f"{precision} needs as much as {like}: {rows}")
        expect(rows[precision]["activation_bytes"] is None, f"activations of {precision} are unknown without a GPU")
        check(LOCKSTEP, ["inspect", *options, "--ranks", "4", "--precision", precision], 0, prints=["activations, a GPU's, come on top"])
    check(LOCKSTEP, ["inspect", *options, "--shard", "full"], 64, says=["--shard without --ranks"])
    check(LOCKSTEP, ["inspect", *options, "--ranks", "4", "--shard", "hybrid"], 64, says=["--shard-group"])
    # With a path, every option that --help lists for networks is refused.
    printed = subprocess.run([LOCKSTEP, "inspect", "--help"], capture_output=True, text=True, timeout=60).stdout
    network_options = dict(re.findall(r"^  --([a-z-]+) .*?(?<=\[)(none|[^] ]+)\]$", printed, re.M | re.S))
    expect({"recompute", "shard", "width", "engine"} <= network_options.keys() and "verify" not in network_options,
           f"options for networks: {network_options}")
    check(LOCKSTEP, ["inspect", data, f"--output={folder / 'sums'}"], 64, says=["--output without --manifest"])
    for name, default in network_options.items() - {("output", "none")}:
        value = {"model": "mlp", "engine": "cpu"}.get(name, default)  # the help shows an empty default as none
        check(LOCKSTEP, ["inspect", data, f"--{name}={value}"], 64, says=[f"--{name} ", "the path"])
    check(LOCKSTEP, ["inspect", *options, "--ranks", "4"], 0, prints=["full", "sent a step"])
    listing_a_step(options)
    # Scratch memory grows with the number of threads. It is computed for the requested number, with and without --engine.
    network = ["--model", "mini-resnet", "--image-size", "32", "--conv-algorithm", "direct", "--threads", "64", "--ranks", "1"]
    alone, beside = (json.loads(check(LOCKSTEP, ["inspect", *network, *more, "--json"], 0))["memory"][0]["activation_bytes"]
                     for more in ([], ["--engine", "cpu"]))
    expect(alone == beside, f"memory of 64 threads without and with --engine cpu: {alone}, {beside}")
    # Shard groups: within a group as with --shard full of its ranks, plus one all-reduce of each shard across the groups.
    def of_groups(ranks, group):
        return {row["shard"]: row for row in json.loads(check(
            LOCKSTEP, ["inspect", *options, "--ranks", ranks, "--shard-group", group, "--json"], 0))["memory"]}

    pairs, all_four, alone = of_groups("4", "2")["hybrid"], of_groups("4", "4"), of_groups("4", "1")
    full = table["2"]["full"]
    expect(pairs["shard_group"] == 2 and pairs["total_bytes"] == full["total_bytes"],
           "a rank of a group of two needs as much memory as one of two ranks with --shard full")
    across = pairs["sent_to_other_groups_bytes_per_step"]
    expect(across == pairs["parameter_bytes"], "an all-reduce between two groups sends the bytes of a rank's shard once")
    expect(abs(pairs["sent_bytes_per_step"] - full["sent_bytes_per_step"] - across) < 1,
           "within its group, a rank sends as much as with --shard full")
    expect(all_four["hybrid"]["sent_to_other_groups_bytes_per_step"] == 0, "a single group sends nothing to other groups")
    expect(all_four["hybrid"]["sent_bytes_per_step"] == all_four["full"]["sent_bytes_per_step"], "a single group sends as much as --shard full")
    whole = alone["none"]["sent_bytes_per_step"]
    expect(abs(alone["hybrid"]["sent_bytes_per_step"] / whole - 1) < 0.01, "groups of one rank send as much as replicas")
    check(LOCKSTEP, ["inspect", *options, "--ranks", "4", "--shard-group", "2"], 0,
          prints=["hybrid: groups of 2", "to other groups"])
    check(LOCKSTEP, ["inspect", *options, "--ranks", "4", "--shard-group", "3"], 64, says=["does not divide 4 ranks"])
    check(LOCKSTEP, ["inspect", *options, "--shard-group", "2"], 64, says=["--shard-group 2 without --ranks"])
    check(LOCKSTEP, ["inspect", data, "--ranks", "4"], 64, says=["--ranks with the path"])
    check(LOCKSTEP, ["inspect", folder / "nowhere"], 66, says=["nowhere"])
    check(LOCKSTEP, ["inspect", folder], 66, says=["holds no shards"])
    check(LOCKSTEP, ["inspect", __file__], 65, says=["program_test.py"])

    content = bytearray(shard.read_bytes())
    content[3000] ^= 1
    shard.write_bytes(content)
    check(LOCKSTEP, ["inspect", data, "--verify"], 65, says=[shard.name, "sample"], prints=["NO"])
    shard.write_bytes(content[:5000])
    check(LOCKSTEP, ["inspect", shard], 65, says=[shard.name])
    shard.unlink()
    check(LOCKSTEP, ["inspect", data], 66, says=[shard.name, "missing"])
    # If one of several paths is faulty, the others are still shown, and the status is that of the first fault.
    check(LOCKSTEP, ["inspect", folder / "nowhere", folder / "three"], 66, prints=["500 samples"])


def memory_is_bounded(folder):
    """Packing a folder streams its images: memory must not grow with the 92 MiB of pixels of one shard."""
    from PIL import Image
    (folder / "tree" / "cat").mkdir(parents=True)
    Image.new("RGB", (64, 64), (1, 2, 3)).save(folder / "tree" / "cat" / "0.png")
    for i in range(1, 160):
        (folder / "tree" / "cat" / f"{i}.png").hardlink_to(folder / "tree" / "cat" / "0.png")
    def peak(image_size):
        output = folder / f"out{image_size}"
        process = subprocess.Popen([LOCKSTEP, "pack", "--from", "folder", "--input", folder / "tree", "--output", output,
                                   "--image-size", str(image_size), "--shards", "1"], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        expect(status == 0, f"packing a folder at {image_size} pixels")
        return usage.ru_maxrss / 1024
    small, large = peak(8), peak(448)
    print(f"        {small:.0f} MiB at 8 pixels, {large:.0f} MiB at 448 (92 MiB of pixels)")
    expect(large - small < 40, "memory does not grow with the data")


def sweeping(folder):
    """`lockstep sweep`: its list, its files and the options that it prints, which train takes."""
    file, base, victim = folder / "rates.txt", folder / "rates", folder / "victim"
    text = "# rates\n--lr=0.05\r\n\n--seed 2\t--lr 0.1\n"
    common = ["--synthetic", "--model", "mlp", "--image-size", 8, "--classes", 4, "--seed", 1, "--max-steps", 2, "--run-dir", base]
    file.write_text(text)
    victim.write_text("kept")
    base.mkdir()
    for name in (".sweep", ".sweep-1", "lr-0.05"):
        (base / name).symlink_to(victim)
    printed = check(LOCKSTEP, ["sweep", file, *common, "--line", 2], 0)
    expect(printed.splitlines()[-7:] == ["--override", "--seed", "2", "--lr", "0.1", "--override", f"--run-dir={base}/lr-0.1_seed-2"], f"the options of line 2: {printed}")
    check(LOCKSTEP, ["train", *printed.splitlines()], 0)
    printed = check(LOCKSTEP, ["sweep", file, *common], 0, prints=["\ncompare them by: lockstep compare "])
    expect(re.sub(" +", " ", printed).startswith(f" 1 {base}/lr-0.05 to run\n 2 {base}/lr-0.1_seed-2 finished\n"), f"the list: {printed}")
    runs = json.loads(check(LOCKSTEP, ["sweep", file, *common, "--json", "--override", "--max-steps", 3], 0))["runs"]
    expect([(run["finished"], run["status"], run["step"]) for run in runs] == [(False, "", 0), (False, "finished", 2)], f"with a later end: {runs}")
    numbers, copy = check(LOCKSTEP, ["sweep", file, "--write", "--max-parallel", 3, *common], 0, says=["finished"]).splitlines()
    expect(numbers == "1-1%3" and pathlib.Path(copy).read_text() == "--lr=0.05\n", f"the lines of runs that have not finished: {numbers} {copy}")
    file.write_text("--seed 2 --lr 0.1\n")
    expect(check(LOCKSTEP, ["sweep", file, "--write", *common], 0) == "", "nothing is written when all have finished")
    expect(sorted(path.name for path in base.iterdir() if not path.is_symlink()) == [pathlib.Path(copy).name, "lr-0.1_seed-2"], "one new file")
    expect(victim.read_text() == "kept", "what others have put into the directory is not followed")
    check(LOCKSTEP, ["sweep", file, *common, "--write", "--override", "--run-dir", victim], 73)
    check(LOCKSTEP, ["sweep", file, *common, "--line", 2], 64, says=["--line 2 is not in", "1 line"])
    check(LOCKSTEP, ["sweep", *common], 64, says=["one file (0 are given)"])
    check(LOCKSTEP, ["sweep", folder / "none", *common], 66)
    file.write_bytes("--lr 1\n".encode("utf-16"))
    check(LOCKSTEP, ["sweep", file, *common], 65, says=["UTF-16"])
    file.write_text("# none\n")
    check(LOCKSTEP, ["sweep", file, *common], 65, says=["no options in"])


def fashion_mnist(folder):
    if not FASHION.is_dir():
        print("skipped fashion-mnist (not installed)")
        return
    printed = check(LOCKSTEP, ["pack", "--from", "mnist", "--input", FASHION, "--output", folder / "fashion", "--json"], 0)
    result = json.loads(printed)
    expect(result["samples"] == 70000 and abs(result["mean"][0] - 0.2860) < 5e-5 and abs(result["std"][0] - 0.3530) < 5e-5,
           "Fashion-MNIST's published mean and deviation")


with tempfile.TemporaryDirectory(prefix="lockstep-test-") as name:
    path = pathlib.Path(name)
    help_and_usage()
    packing(path)
    benchmarking(path)
    inspecting(path)
    sweeping(path)
    fashion_mnist(path)
    try:
        memory_is_bounded(path)
    except ImportError as missing:
        print(f"skipped memory: {missing}")
finish()
