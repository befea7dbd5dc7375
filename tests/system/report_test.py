#!/usr/bin/env python3
"""Tests `lockstep report`, `compare` and `export-metrics` on real and on hostile runs, without a browser."""

import csv
import io
import json
import math
import os
import re
import subprocess

import harness
from harness import BAD_INPUT, CANNOT_WRITE, LOCKSTEP, NO_INPUT, OK, USAGE, events, main, run, train_args, write_shards


def page_data(path):
    """The data of a page, as its scripts read it."""
    text = path.read_text()
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])


def fake_run(folder, lines, config="model=mlp\nlr=0.1\nseed=0\n"):
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "config.ini").write_text(config)
    return folder


def write_study(folder, rates, local=8):
    """Results of scaling.sbatch: images/s by mode, nodes and repetition, for two ranks a node; a fifth of a step is exposed."""
    folder.mkdir()
    with open(folder / "points", "w") as points:
        for mode, by_nodes in rates.items():
            for nodes, repetitions in by_nodes.items():
                batch = local if mode == "weak" else local // nodes
                for i, rate in enumerate(repetitions, 1):
                    points.write(f"{mode} {nodes} {i}\n")
                    (folder / f"{mode}-{nodes:04}-{i}.json").write_text(json.dumps({
                        "benchmark": "step", "model": "mlp", "width": 64, "image_size": 32, "channels": 3, "classes": 10, "batch_size": batch,
                        "precision": "fp32", "bucket_mb": 0.5, "shard": "none", "shard_group": 0, "engine": "an engine", "ranks": 2 * nodes,
                        "global_batch": 2 * nodes * batch, "images_per_second": rate, "step_seconds_median": 0.1,
                        "exposed_communication_seconds": 0.02, "machine": {"version": "1.0", "processor": "a processor"}}))
    return folder


def a_page_has_what_a_run_recorded(folder):
    data = write_shards(folder / "data")
    write_shards(data, samples=24, shards=1, split="val")
    first = ["mlp" if word == "mini-resnet" else word for word in train_args(data, folder / "run", "--ema-decay", "0.9", "--epochs", "2")]
    run(first, ranks=2)
    again = ["0.04" if word == "0.05" else word for word in [*first[:-1], "3"]]
    run(again, ranks=2)
    run(["eval", "--checkpoint", folder / "run/checkpoints/best", "--data", data, "--confusion", folder / "run/confusion.csv"])
    run(["report", folder / "run", "-o", folder / "report.html"])

    [shown] = page_data(folder / "report.html")["runs"]
    steps = events(folder / "run", "step")
    assert shown["steps"]["stride"] == 1 and shown["steps"]["step"] == [e["step"] for e in steps]
    for name in ("loss", "top1", "lr", "images_per_second"):
        assert shown["steps"]["series"][name]["mean"] == [e[name] for e in steps], name
    for phase in ("data", "forward", "backward", "communication", "optimizer"):
        assert shown["steps"]["series"][f"seconds.{phase}"]["mean"] == [e["seconds"][phase] for e in steps], phase
    evaluations = events(folder / "run", "eval")
    assert len(evaluations) >= 2 and shown["evaluations"]["series"]["ema_top1"]["mean"] == [e["ema_top1"] for e in evaluations]
    assert shown["checkpoints"]["rows"] == len(events(folder / "run", "checkpoint"))

    start, resume = [session["event"] for session in shown["sessions"]]
    assert start["ranks"] == 2 and start["nodes"] == 1 and start["hosts"] and start["device"] == "cpu", start
    assert "oneDNN" in start["backend"] and start["all_reduce"] and start["threads"] and start["version"], start
    assert start["memory"]["activations"] > 0 and start["memory"]["parameters"] > 0 and start["changes"] == {}, start
    assert start["seconds"]["MPI"] > 0 and start["memory"]["copy"] > 0, start
    assert resume["event"] == "resume" and resume["changes"]["lr"] == ["0.05", "0.04"], resume
    assert shown["epoch_samples"] == 96 and shown["figures"]["epochs"] == 3 and shown["figures"]["status"] == "finished", shown["figures"]
    assert shown["peak_rss"] > start["memory"]["parameters"]
    hours = shown["steps"]["hours"]
    assert all(a <= b for a, b in zip(hours, hours[1:])) and 0 < hours[-1] < 0.5, hours
    assert sum(shown["confusion"]["samples"]) == 24 and len(shown["confusion"]["classes"]) == 10
    assert ["lr", "0.04"] in shown["options"]


def an_existing_file_is_replaced_only_if_it_is_a_page(folder):
    made = fake_run(folder / "run", [{"event": "step", "step": 1, "loss": 1}])
    page = folder / "report.html"
    run(["report", made, "--output", page])
    run(["report", made, "--output", page])
    page.write_text("my notes")
    assert "no page of lockstep report" in run(["report", made, "--output", page], expect=USAGE)
    assert page.read_text() == "my notes"
    run(["report", made, "--output", folder / "absent/report.html"], expect=CANNOT_WRITE)
    assert "no run directory" in run(["report", folder, "-o", folder / "x.html"], expect=NO_INPUT)
    run(["report"], expect=USAGE)


def no_character_of_a_page_turns_or_hides_text(folder):
    """As text the data would show other words than they are."""
    hidden = "\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff\x85\x7f\xad"
    model = f"m{hidden}\u4e2d"
    run_dir = fake_run(folder / "run", [{"event": "start", "step": 0, "model": model}], config=f"data=d{hidden}\n")
    page = folder / "page.html"
    run(["report", run_dir, "-o", page])
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)[1]
    assert not set(hidden) & set(data), sorted(set(hidden) & set(data))
    assert "\u4e2d" in data and model in json.dumps(page_data(page), ensure_ascii=False), data[:2000]


def hostile_runs_become_pages(folder):
    """Half a line, NaN losses, an empty run, and names that are HTML."""
    torn = fake_run(folder / "torn", [{"event": "step", "step": s, "loss": None if s > 2 else 1.5} for s in range(1, 6)])
    with open(torn / "metrics.jsonl", "a") as file:
        file.write('{"event":"step","step":6,"lo')
    output = run(["report", torn, "-o", folder / "torn.html"])
    assert "last line of metrics.jsonl is incomplete" in output, output
    [shown] = page_data(folder / "torn.html")["runs"]
    assert shown["steps"]["series"]["loss"]["mean"] == [1.5, 1.5, None, None, None] and shown["not_finite"] == 3

    empty = fake_run(folder / "empty", [], config="")
    run(["report", empty, "-o", folder / "empty.html"])
    assert page_data(folder / "empty.html")["runs"][0]["steps"]["rows"] == 0

    script = "<script>alert(1)<!--"
    hostile = fake_run(folder / script, [{"event": "start", "step": 0, "model": "</script>" + script}], config=f"data={script}\n")
    (hostile / "confusion.csv").write_text(f"true class,</script>{script}\n</script>{script},3\n")
    run(["report", hostile, torn, "-o", folder / "hostile.html"])
    run(["report", hostile, "-o", folder / "hostile-alone.html"])
    for page in ("hostile.html", "hostile-alone.html"):
        text = (folder / page).read_text()
        assert "alert(1)<" not in text, "text of a run is not escaped"
        assert page_data(folder / page)["runs"][0]["name"] == script
    assert page_data(folder / "hostile-alone.html")["runs"][0]["confusion"]["classes"] == ["</script>" + script]


def deeply_nested_json_is_a_damaged_record(folder):
    """Arrays and objects in each other, 100,000 deep, wherever a run or a study holds JSON; no command may use stack for them."""
    depth = 100_000
    deep = ["[" * depth + "]" * depth, '{"a":' * depth + "0" + "}" * depth]
    step = {"event": "step", "step": 1, "loss": 1, "time": 1}
    run_dir = fake_run(folder / "run", [step])
    with open(run_dir / "metrics.jsonl", "a") as file:
        for kind in ("start", "step", "eval", "stop"):
            file.writelines(f'{{"event":"{kind}","step":2,"x":{value}}}\n' for value in deep)
        file.writelines(f"{value}\n" for value in deep)
        file.write(json.dumps({**step, "step": 3}) + "\n")
    (run_dir / "lock").write_text(deep[1])
    assert "10 damaged lines" in run(["report", run_dir, "-o", folder / "page.html"])
    assert page_data(folder / "page.html")["runs"][0]["steps"]["rows"] == 2
    for command in (["compare"], ["compare", "--json"], ["compare", "--csv"], ["watch", "--once"], ["watch", "--json"]):
        run([command[0], run_dir, *command[1:]])
    output = run(["export-metrics", run_dir])
    assert "10 damaged lines" in output and output.count("\nstep,") == 2, output
    run(["inspect", run_dir], expect=BAD_INPUT)
    study = write_study(folder / "study", {"weak": {1: [100.0, 90.0]}})
    next(study.glob("*-1.json")).write_text(deep[0])
    assert "no whole result" in run(["report", study, "-o", folder / "study.html"], expect=1)


def lines_without_an_end_take_bounded_memory(folder):
    """A line of 1 GiB, in a sparse file, with 1 GB of address space."""
    run_dir = fake_run(folder / "run", [{"event": "step", "step": 1, "loss": 1, "time": 1}])
    os.truncate(run_dir / "metrics.jsonl", 1 << 30)
    for args in (["compare", run_dir], ["export-metrics", run_dir]):
        process = subprocess.Popen(["bash", "-c", "ulimit -v 1000000; exec \"$@\"", "bash", *harness.command(args)], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, env=harness.environment(), process_group=0)
        status, output = harness.finish(process)
        assert status == BAD_INPUT and re.search(r"metrics.jsonl has a line of \d+ bytes or more", output), f"status {status}: {output}"


def a_million_steps_take_seconds_and_little_memory(folder):
    """Measured on two cores: 0.7 s of processor time and 54 MB (limits: 20 s, since the machine may be busy, and 300 MB)."""
    run_dir = fake_run(folder / "run", [])
    line = ('{{"event":"step","step":{0},"epoch":{1},"samples":{2},"loss":{3},"top1":0.5078125,"top5":0.8203125,"lr":0.0975,'
            '"images_per_second":1359.77692908,"seconds":{{"data":0.0037989,"forward":0.0561946,"backward":0.1103582,'
            '"communication":0.0153243,"optimizer":0.004}},"gradient_norm":1.75664822,"time":1764000002.125}}\n')
    with open(run_dir / "metrics.jsonl", "w") as file:
        for first in range(0, 1_000_000, 10_000):
            file.write("".join(line.format(s, s // 5000, 256 * s, 99.5 if s == 765_432 else 2.5 + s % 7 / 8)
                               for s in range(first + 1, first + 10_001)))
    page = folder / "report.html"
    process = harness.start(["report", run_dir, "-o", page])
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    print(f"        {usage.ru_utime + usage.ru_stime:.2f} s, {usage.ru_maxrss / 1e3:.0f} MB, page {page.stat().st_size / 1e6:.2f} MB")
    assert process.returncode == OK, output
    if not harness.REPORTS:
        assert usage.ru_utime + usage.ru_stime < 20 and usage.ru_maxrss < 300e3, usage
    assert page.stat().st_size < 2e6
    [shown] = page_data(page)["runs"]
    assert shown["steps"]["rows"] == 1_000_000 and max(shown["steps"]["series"]["loss"]["max"]) == 99.5
    assert min(shown["steps"]["series"]["loss"]["min"]) == 2.5


def pages_of_many_runs_stay_small(folder):
    steps = [{"event": "step", "step": s, "samples": 8 * s, "loss": 1 / s, "top1": 0.123456789 + s / 1e6, "lr": 0.1 / s,
              "images_per_second": 1000.123456 + s, "gradient_norm": 1.23456789 / s,
              "seconds": {p: 0.123456789 / s for p in ("data", "forward", "backward", "communication", "optimizer")}} for s in range(1, 1500)]
    runs = [fake_run(folder / f"run{i}", steps, config=f"seed={i}\n") for i in range(20)]
    run(["report", *runs, "-o", folder / "report.html"])
    assert (folder / "report.html").stat().st_size < 2e6


def a_scaling_study_becomes_a_table_and_a_page(folder):
    rates = {"weak": {1: (100, 110, 102), 2: (190, 195, 200), 4: (300, 280)}, "strong": {1: (100, 101, 102), 2: (150, 140, 160)}}
    study = write_study(folder / "study", rates)
    page = folder / "scaling.html"
    table = run(["report", study, "-o", page])
    lines = [line.split() for line in table.splitlines()]
    assert lines[0] == ["mlp,", "fp32,", "an", "engine"] and lines[2][:2] == ["mode", "nodes"], table
    assert lines[3] == ["weak", "1", "2", "16", "102.0", "100.0-110.0", "100.0", "%", "20.0", "%", "3", "of", "3"], table
    assert lines[5][6:8] == ["71.1", "%"] and "predicted" not in table, table
    shown = page_data(page)["study"]
    assert [point["nodes"] for point in shown["points"]] == [1, 2, 4, 1, 2] and not shown["notes"], shown

    # What is absent or damaged is missing, by name.
    (study / "points").write_text((study / "points").read_text() + "weak 4 3\nstrong 4 1\n")
    (study / "weak-0004-3.json").write_text('{"images_per_second": 3')
    printed = run(["report", study, "-o", page], expect=1)
    assert "weak-0004-3.json is no whole result" in printed and printed.count("missing") == 6 and "2 of 3" in printed, printed
    got = json.loads(run(["report", study, "-o", page, "--json"], expect=1).splitlines()[-1])
    points = {(point["mode"], point["nodes"]): point for point in got["study"]["points"]}
    assert got["path"] == str(page) and got["bytes"] == page.stat().st_size, got
    assert points["weak", 4]["missing"] == ["weak-0004-3"] and points["weak", 4]["images_per_second"]["median"] == 290, points
    assert points["strong", 4]["missing"] == ["strong-0004-1"] and points["strong", 4]["images_per_second"]["median"] is None, points

    # The study is neither a run nor compared with one.
    made = fake_run(folder / "run", [{"event": "step", "step": 1, "loss": 1}])
    assert "is shown alone" in run(["report", study, made, "-o", page], expect=USAGE)
    assert "no run is predicted" in run(["report", made, "-o", page, "--link", "1gbit"], expect=USAGE)
    run(["report", study, "-o", page, "--link", "fast"], expect=USAGE)
    (study / "points").write_text("weak\n")
    assert "line 1 cannot be read" in run(["report", study, "-o", page], expect=BAD_INPUT)


def a_scaling_study_is_predicted_as_by_scale(folder):
    """From the rate of a rank on the fewest nodes: there a step of 8 images a rank computes for 0.08 s."""
    study = write_study(folder / "study", {"weak": {1: (100,), 2: (190,)}, "strong": {2: (150,)}}, local=8)
    links = ["--link", "1gbit", "--local-link", "8gbit", "--round-us", "20", "--host-ns-per-byte", "0.5"]
    got = json.loads(run(["report", study, "-o", folder / "page.html", *links, "--json"]))["study"]["points"]
    for point, nodes, batch in zip(got, (1, 2, 2), (8, 8, 4)):
        rows = json.loads(run(["scale", "--model", "mlp", "--width", 64, "--image-size", 32, "--channels", 3, "--classes", 10, "--bucket-mb", 0.5,
                               "--nodes", nodes, "--gpus-per-node", 2, "--batch-size", batch, "--images-per-second", 100, *links, "--json"]))["rows"]
        row = next(row for row in rows if row["shard"] == "none" and row["bucket_mb"] == 0.5)
        predicted = point["predicted"]
        for name in ("step_seconds", "exposed_communication_seconds"):
            assert math.isclose(predicted[name], row[name], rel_tol=1e-9), (point, row)
        assert math.isclose(predicted["images_per_second"], 2 * nodes * batch / row["step_seconds"]), point
    weak = [point["predicted"] for point in got[:2]]
    assert weak[0]["efficiency"] == 1 and math.isclose(weak[1]["efficiency"], weak[1]["images_per_second"] / 2 / weak[0]["images_per_second"])
    assert "measured/predicted" in run(["report", study, "-o", folder / "page.html", *links])

    # Results of an earlier version lack what a prediction needs.
    for file in study.glob("*.json"):
        file.write_text(json.dumps({name: value for name, value in json.loads(file.read_text()).items() if name != "bucket_mb"}))
    assert "nothing is predicted" in run(["report", study, "-o", folder / "page.html", *links])


def the_step_benchmark_names_what_a_prediction_needs(folder):
    (folder / "study").mkdir()
    (folder / "study/points").write_text("weak 1 1\n")
    result = run(["bench", "step", "--model", "mlp", "--width", 16, "--image-size", 8, "--steps", 2, "--warmup", 1, "--threads", 1, "--json"], ranks=2)
    (folder / "study/weak-0001-1.json").write_text(result.splitlines()[-1])
    [point] = json.loads(run(["report", folder / "study", "-o", folder / "page.html", "--link", "1gbit", "--json"]))["study"]["points"]
    assert point["ranks"] == 2 and point["predicted"]["step_seconds"] > 0, point


def compare_prints_options_that_differ_and_final_figures(folder):
    def lines(top1):
        return [{"event": "start", "step": 0, "samples": 0, "epoch_samples": 100, "time": 0},
                {"event": "step", "step": 10, "samples": 200, "loss": 1.5, "images_per_second": 700, "time": 3600},
                {"event": "eval", "step": 10, "loss": 0.75, "top1": top1, "top5": 1, "time": 3600},
                {"event": "stop", "step": 10, "reason": "finished", "time": 7200}]
    one = fake_run(folder / "one", lines(0.5))
    two = fake_run(folder / "two", lines(0.625), config="model=mlp\nlr=0.2\nseed=0\n")

    text = run(["compare", one, two])
    head, first, second = text.splitlines()
    assert head.split()[:2] == ["run", "lr"] and "seed" not in head and "average" not in head, text
    assert "50.00" in first and "62.50" in second and "finished" in first and "0.2 " in second, text
    rows = list(csv.DictReader(io.StringIO(run(["compare", one, two, "--csv"]))))
    assert [row["best_top1"] for row in rows] == ["0.5", "0.625"] and rows[1]["lr"] == "0.2" and rows[0]["epochs"] == "2", rows
    assert rows[0]["hours"] == "2" and rows[0]["images_per_second"] == "700" and rows[0]["ema_top1"] == "", rows
    shown = json.loads(run(["compare", one, two, "--json"]))["runs"]
    assert shown[1]["options"] == {"lr": "0.2"} and shown[1]["top1"] == 0.625 and shown[0]["ema_top1"] is None, shown
    run(["compare", one, "--csv", "--json"], expect=USAGE)
    run(["compare"], expect=USAGE)
    run(["compare", folder / "absent"], expect=NO_INPUT)


def losses_that_are_not_finite_are_noted(folder):
    lines = [{"event": "step", "step": 5 * s, "loss": None if s in (3, 4, 7) else 1 / s} for s in range(1, 9)]
    lost, fine = fake_run(folder / "lost", lines), fake_run(folder / "fine", [{"event": "step", "step": 1, "loss": 1}])
    noted = f"{lost}: 3 recorded steps with a loss that is not finite, the first at step 15"

    table = run(["compare", fine, lost])
    assert noted in table and f"{fine}:" not in table, table
    head, *rows = [line.split() for line in table.splitlines() if "warning" not in line]
    assert head[-5:] == ["not", "finite", "from", "step", "status"] and rows[0][3:5] == ["0", "-"] and rows[1][3:5] == ["3", "15"], table
    assert "not finite" not in run(["compare", fine])
    shown = json.loads(run(["compare", fine, lost, "--json"]).splitlines()[-1])["runs"]
    assert [(each["not_finite"], each["first_not_finite"]) for each in shown] == [(0, None), (3, 15)], shown
    rows = list(csv.DictReader(run(["compare", fine, lost, "--csv"]).splitlines()[1:]))
    assert [(row["not_finite"], row["first_not_finite"]) for row in rows] == [("0", ""), ("3", "15")], rows

    assert noted in run(["report", lost, fine, "-o", folder / "page.html"])
    assert [(each["not_finite"], each["first_not_finite"]) for each in page_data(folder / "page.html")["runs"]] == [(3, 15), (0, None)]


def a_confusion_matrix_of_another_file_is_shown(folder):
    made = fake_run(folder / "run", [{"event": "step", "step": 1, "loss": 1}])
    (made / "confusion.csv").write_text("true class,own\nown,1\n")
    other, page = folder / "other.csv", folder / "page.html"
    other.write_text("true class,cat,dog\ncat,30,10\ndog,5,55\n")

    printed = json.loads(run(["report", made, "--confusion", other, "-o", page, "--json"]))
    assert printed == {"path": str(page), "runs": 1, "bytes": page.stat().st_size}, printed
    shown = page_data(page)["runs"][0]["confusion"]
    assert shown == {"classes": ["cat", "dog"], "samples": [40, 60], "hits": [30, 55], "errors": [0, 1, 10, 1, 0, 5], "dropped": 0}, shown
    run(["report", made, "-o", page])
    assert page_data(page)["runs"][0]["confusion"]["classes"] == ["own"]

    before = page.read_bytes()
    assert "it is shown for one" in run(["report", made, made, "--confusion", other, "-o", page], expect=USAGE)
    run(["report", made, "--confusion", folder / "absent.csv", "-o", page], expect=NO_INPUT)
    other.write_text("true class,cat\ncat,x\n")
    assert "row 2, column 2 cannot be read" in run(["report", made, "--confusion", other, "-o", page], expect=BAD_INPUT)
    assert page.read_bytes() == before


def exported_metrics_are_those_of_the_run(folder):
    lines = [{"event": "start", "step": 0, "changes": {}}, {"event": "step", "step": 1, "loss": 0.1, "seconds": {"data": 1e-7}},
             {"event": "step", "step": 2, "loss": None}, {"event": "stop", "step": 2, "reason": 'a "b", c'}]
    made = fake_run(folder / "run", lines)

    rows = list(csv.DictReader(io.StringIO(run(["export-metrics", made, "--csv"]))))
    assert [row["event"] for row in rows] == ["start", "step", "step", "stop"], rows
    assert float(rows[1]["seconds.data"]) == 1e-7 and rows[1]["loss"] == "0.1" and rows[2]["loss"] == "", rows
    assert rows[3]["reason"] == 'a "b", c', rows
    rows = list(csv.DictReader(io.StringIO(run(["export-metrics", made, "--event", "step"]))))
    assert len(rows) == 2 and rows[0].keys() == {"event", "step", "loss", "seconds.data"}, rows
    run(["export-metrics", made, "--event", "stepp"], expect=USAGE)
    run(["export-metrics", folder], expect=NO_INPUT)
    run(["export-metrics", made, made], expect=USAGE)
    with open(made / "metrics.jsonl", "a") as file:
        file.write('garbage\n{"event":"st')  # the last line is still being written
    output = run(["export-metrics", made])
    assert "warning: 1 damaged line of metrics.jsonl left out" in output and output.count("\n") == 6, output
    with open("/dev/full", "w") as full:
        done = subprocess.run([LOCKSTEP, "export-metrics", made], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == CANNOT_WRITE and "cannot write to standard output" in done.stderr, done


if __name__ == "__main__":
    main([a_page_has_what_a_run_recorded, an_existing_file_is_replaced_only_if_it_is_a_page, no_character_of_a_page_turns_or_hides_text, hostile_runs_become_pages, deeply_nested_json_is_a_damaged_record, lines_without_an_end_take_bounded_memory,
          a_million_steps_take_seconds_and_little_memory, pages_of_many_runs_stay_small,
          a_scaling_study_becomes_a_table_and_a_page, a_scaling_study_is_predicted_as_by_scale, the_step_benchmark_names_what_a_prediction_needs,
          compare_prints_options_that_differ_and_final_figures, losses_that_are_not_finite_are_noted,
          a_confusion_matrix_of_another_file_is_shown, exported_metrics_are_those_of_the_run])
