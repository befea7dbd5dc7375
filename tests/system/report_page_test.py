#!/usr/bin/env python3
"""Tests the page of `lockstep report` in a headless Chromium: real mouse and keyboard events, both themes, wide and narrow windows.

With LOCKSTEP_SCREENSHOTS=FOLDER, it also keeps screenshots there."""

import base64
import importlib.util
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import sys

from harness import Skipped, main, run

try:
    from selenium import webdriver
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select
except ImportError as missing:
    print(f"skipped: {missing} (install python3-selenium)")
    sys.exit(77)

PHASES = ("data", "forward", "backward", "communication", "optimizer")
SCRIPT = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


def start_browser():
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        print("skipped: no chromium and chromedriver (install chromium and chromium-driver)")
        sys.exit(77)
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    # /dev/shm may be small in a container; root has no sandbox.
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars", "--window-size=1280,1000"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(service=webdriver.chrome.service.Service(programs[1]), options=options)
    browser.set_page_load_timeout(60)
    return browser


BROWSER = start_browser()


def events_of_a_run(steps=60, epoch=20, seed=0, name="a"):
    lines = [{"event": "start", "step": 0, "epoch": 0, "samples": 0, "model": "mlp", "ranks": 4, "global_batch": 32, "epoch_samples": 32 * epoch,
              "version": "1.0", "nodes": 2, "hosts": "n1,n2", "device": "cpu", "engine": "oneDNN", "time": 1000, "changes": {},
              "memory": {"activations": 3000000, "parameters": 1000000, "gradients": 1000000, "optimizer": 1000000, "copy": 2000000}}]
    for step in range(1, steps + 1):
        time = 1000 + 36 * step
        lines.append({"event": "step", "step": step, "epoch": (step - 1) // epoch, "samples": 32 * step, "loss": 3 / (step + seed + 1) + 0.1,
                      "top1": 1 - 1 / (step + 1), "top5": 1, "lr": 0.1 * (1 + math.cos(step / steps * 3)), "images_per_second": 900 + step % 7,
                      "seconds": {phase: (i + 1) / 1000 for i, phase in enumerate(PHASES)}, "time": time})
        if step % epoch == 0:
            lines.append({"event": "epoch", "step": step, "epoch": step // epoch - 1, "samples": 32 * step, "loss": 0.5, "top1": 0.6, "top5": 1,
                          "images_per_second": 900, "peak_rss_bytes": 12000000, "time": time})
            lines.append({"event": "eval", "step": step, "epoch": step // epoch - 1, "samples": 100, "loss": 2 / step + seed / 100,
                          "top1": 0.5 + step / 200 + seed / 100, "top5": 0.9, "ema_loss": 1 / step, "ema_top1": 0.55 + step / 250, "time": time})
            lines.append({"event": "checkpoint", "step": step, "path": "x.h5", "time": time})
        if step == 2 * epoch:
            lines.append({"event": "straggler", "step": step, "epoch": 1, "rank": 3, "host": "n2", "factor": 2.5,
                          "seconds": {"data": {"p50": 0.25, "max": 1}, "compute": {"p50": 0.5, "max": 1}}, "time": time})
            lines.append({"event": "stop", "step": step, "reason": "stopped on request", "time": time})
            lines.append({**lines[0], "event": "resume", "step": step, "samples": 32 * step, "time": time, "changes": {"lr": ["0.1", "0.2"]}})
    return [*lines, {"event": "stop", "step": steps, "reason": "finished", "time": time}]


def make_run(folder, lines, config):
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "config.ini").write_text(config)
    return folder


def one_page(folder):
    made = make_run(folder / "one", events_of_a_run(), "model=mlp\nlr=0.2\nseed=0\n")
    (made / "confusion.csv").write_text("true class,cat,dog\ncat,30,10\ndog,5,55\n")
    run(["report", made, "-o", folder / "one.html"])
    return folder / "one.html"


def page_of_three(folder):
    """Two seeds of one configuration, and another one."""
    runs = [make_run(folder / name, events_of_a_run(seed=seed), f"model=mlp\nlr={lr}\nseed={seed}\n")
            for name, seed, lr in (("first", 1, 0.1), ("second", 3, 0.1), ("third", 5, 0.2))]
    run(["report", *runs, "-o", folder / "three.html"])
    return folder / "three.html"


def page_of_a_study(folder, more=("--link", "1gbit", "--local-link", "8gbit")):
    """Weak on 1, 2, 4 and 8 nodes and strong on 1, 2 and 4, with two repetitions, of which one is missing."""
    study = folder / "study"
    study.mkdir()
    with open(study / "points", "w") as points:
        for mode, count in (("weak", 4), ("strong", 3)):
            for nodes, i in itertools.product([2 ** k for k in range(count)], (1, 2)):
                points.write(f"{mode} {nodes} {i}\n")
                batch = 64 * nodes if mode == "weak" else 64
                step = 0.1 * batch / 64 / nodes + 0.01 * nodes + 0.005 * i
                if (mode, nodes, i) == ("weak", 4, 2):
                    continue
                (study / f"{mode}-{nodes:04}-{i}.json").write_text(json.dumps({
                    "model": "resnet18", "width": 0, "image_size": 64, "channels": 3, "classes": 10, "precision": "fp32", "bucket_mb": 25,
                    "shard": "none", "shard_group": 0, "engine": "oneDNN", "ranks": 4 * nodes, "global_batch": batch, "threads": 1,
                    "images_per_second": batch / step, "step_seconds_median": step, "exposed_communication_seconds": 0.008 * nodes,
                    **({"hidden_communication_seconds": 0.004 * nodes} if mode == "weak" else {}),
                    "machine": {"processor": "a processor", "version": "1.0"}}))
    run(["report", study, "-o", folder / "study.html", *more], expect=1)
    return folder / "study.html"


def load(page, width=1280, theme="light"):
    BROWSER.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]})
    BROWSER.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False})
    BROWSER.get(f"file://{page}")
    # Debian 13's dygraphs 2.2.1-4 reports each zoom of an earlier page.
    messages = [entry for entry in BROWSER.get_log("browser") if "points out of X bounds" not in entry["message"]]
    assert not messages, f"the page writes to the console: {messages}"


def js(text, *arguments):
    return BROWSER.execute_script(text, *arguments)


def find(selector):
    return BROWSER.find_element(By.CSS_SELECTOR, selector)


def chart_number(title):
    titles = js("return lockstepReport.charts.map(chart => chart.title)")
    return next(i for i, each in enumerate(titles) if each.startswith(title))


def plot(title):
    element = BROWSER.find_elements(By.CSS_SELECTOR, ".plot")[chart_number(title)]
    js("arguments[0].scrollIntoView({block: 'center'})", element)
    return element


def range_of(title):
    return js(f"return lockstepReport.charts[{chart_number(title)}].graph.xAxisRange()")


def legend_of(title):
    """Name and value of each curve in a legend."""
    buttons = js(f"return lockstepReport.charts[{chart_number(title)}].entries.map(entry => entry.button)")
    return {button.find_element(By.CSS_SELECTOR, ".name").text: button.find_element(By.CSS_SELECTOR, ".value").text for button in buttons}


def pages_load_without_a_message(folder):
    for page in (one_page(folder), page_of_three(folder), page_of_a_study(folder)):
        for theme in ("light", "dark"):
            for width in (1280, 400):
                load(page, width, theme)
                size = js("return [document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
                assert size[0] <= width, f"the page is {size[0]} pixels wide in a window of {width}"
                assert js("return document.documentElement.dataset.theme") == theme
                background = js("return getComputedStyle(document.body).backgroundColor")
                assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 200) == (theme == "dark"), background
                if target := os.environ.get("LOCKSTEP_SCREENSHOTS"):
                    clip = {"x": 0, "y": 0, "width": width, "height": size[1], "scale": 1}
                    shot = BROWSER.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
                    pathlib.Path(target, f"{page.stem}-{theme}-{width}.png").write_bytes(base64.b64decode(shot["data"]))
    text = page.read_text()
    assert not re.search(r'(src|href)="(?!data:|#)', re.sub(r"<script.*?</script>", "", text, flags=re.S)), "the page names another file"


def plotted_values_are_those_of_the_run(folder):
    load(one_page(folder))
    lines = [json.loads(line) for line in (folder / "one/metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["event"] == "step"]

    points = js(f"return lockstepReport.charts[{chart_number('Loss')}].all[0].points")
    assert [[x, value[1]] for x, value in points] == [[e["step"], e["loss"]] for e in steps]
    points = js(f"return lockstepReport.charts[{chart_number('Loss')}].all[2].points")
    assert [[x, value[1]] for x, value in points] == [[e["step"], e["loss"]] for e in lines if e["event"] == "eval"]
    for i, phase in enumerate(PHASES):
        points = js(f"return lockstepReport.charts[{chart_number('Time of a step by phase')}].all[{i}].points")
        assert all(math.isclose(y, 1000 * e["seconds"][phase]) for (_, y), e in zip(points, steps)) and len(points) == 60, phase

    # What the mouse points at.
    element = plot("Loss")
    ActionChains(BROWSER).move_to_element(element).move_by_offset(40, 0).perform()
    at = find(".legend .at").text
    step = int(re.search(r"step ([\d,]+)", at)[1])
    loss = next(e["loss"] for e in steps if e["step"] == step)
    assert 20 < step < 60 and math.isclose(float(legend_of("Loss")["training"]), loss, rel_tol=1e-3), (at, legend_of("Loss"))
    # The other plots read the same point.
    assert legend_of("Images/s")["images/s"] == str(900 + step % 7)
    assert legend_of("Time of a step by phase")["backward"] == "3 ms"
    # Every figure of the summary.
    summary = find(".figures").text
    assert "80.00 %" in summary and "finished" in summary and "2 jobs" in summary and "60 steps" in summary, summary


def the_x_axis_changes_and_zooms(folder):
    load(one_page(folder))
    axis = Select(find("#x-axis"))
    assert [option.text for option in axis.options] == ["steps", "epochs", "samples", "hours"]
    for name, end in (("epochs", 3), ("samples", 1920), ("hours", 0.6), ("steps", 60)):
        axis.select_by_visible_text(name)
        last = js(f"return lockstepReport.charts[{chart_number('Loss')}].rows.at(-1)[0]")
        assert math.isclose(last, end), (name, last)
        evaluated = js(f"return lockstepReport.charts[{chart_number('Loss')}].all[2].points.map(point => point[0])")
        assert all(math.isclose(x, end * (i + 1) / 3) for i, x in enumerate(evaluated)) and len(evaluated) == 3, (name, evaluated)

    reset = find("#reset-zoom")
    assert not reset.is_enabled()
    whole = range_of("Images/s")
    ActionChains(BROWSER).move_to_element_with_offset(plot("Loss"), -60, 0).click_and_hold().move_by_offset(60, 2).move_by_offset(60, 0).release().perform()
    zoomed = range_of("Images/s")
    assert zoomed[0] > whole[0] + 5 and zoomed[1] < whole[1] - 5 and zoomed == range_of("Loss"), (whole, zoomed)
    assert reset.is_enabled()
    js("window.scrollTo(0, 0)")
    reset.click()
    assert range_of("Loss") == range_of("Images/s") == whole and not reset.is_enabled()


def the_keyboard_reads_and_zooms(folder):
    load(one_page(folder))
    element = plot("Loss")
    js("arguments[0].focus()", element)
    element.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert find(".legend .at").text == "at step 3" and legend_of("Loss")["training"] == "0.85", legend_of("Loss")
    assert "training 0.85" in js(f"return lockstepReport.charts[{chart_number('Loss')}].spoken.textContent")
    whole = range_of("Loss")
    element.send_keys("+")
    zoomed = range_of("Learning rate")
    assert math.isclose(zoomed[1] - zoomed[0], (whole[1] - whole[0]) / 2), zoomed
    element.send_keys(Keys.SHIFT + Keys.ARROW_RIGHT)
    assert range_of("Loss")[0] > zoomed[0]
    element.send_keys("0")
    assert range_of("Loss") == whole
    # The tabulator reaches the tools and each legend and plot.
    load(folder / "one.html")
    reached = set()
    for _ in range(40):
        ActionChains(BROWSER).send_keys(Keys.TAB).perform()
        reached.add(js("return document.activeElement.id || document.activeElement.className"))
    assert {"x-axis", "theme", "plot"} <= reached, reached


def legends_toggle_and_axes_become_logarithmic(folder):
    load(one_page(folder))
    plot("Loss")
    number = chart_number("Loss")
    button = find(".legend button")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert js(f"return lockstepReport.charts[{number}].graph.visibility()") == [False, True, True, True]
    button.send_keys(Keys.ENTER)
    assert js(f"return lockstepReport.charts[{number}].graph.visibility()")[0] is True
    log = find("button[aria-label='Logarithmic axis of Loss']")
    log.click()
    assert log.get_attribute("aria-pressed") == "true"
    assert js(f"return lockstepReport.charts[{number}].graph.attributes_.getForAxis('logscale', 0)") is True
    js("window.scrollTo(0, 0)")
    find("#theme").click()
    assert js("return document.documentElement.dataset.theme") == "dark"
    assert log.get_attribute("aria-pressed") == "true"


def column(table, number):
    return [row.find_elements(By.CSS_SELECTOR, "th, td")[number].text for row in table.find_elements(By.CSS_SELECTOR, "tbody tr")]


def runs_are_compared_and_folded(folder):
    load(page_of_three(folder))
    table = find("table[aria-label='Runs']")
    assert column(table, 0) == ["lr=0.1 (2 seeds)", "third"], column(table, 0)
    heads = [head.text for head in table.find_elements(By.CSS_SELECTOR, "thead th")]
    assert heads[1:3] == ["lr", "seed"] and "best top-1" in heads, heads
    assert column(table, heads.index("top-1"))[0] == "82.00 % ± 1.41", column(table, heads.index("top-1"))
    points = js(f"return lockstepReport.charts[{chart_number('Validation top-1')}].all[0].points")
    assert len(points) == 3 and all(math.isclose(a, b) for a, b in zip(points[-1][1], (81, 82, 83))), points

    find("#fold").click()
    table = find("table[aria-label='Runs']")
    assert column(table, 0) == ["first", "second", "third"]
    head = table.find_elements(By.CSS_SELECTOR, "thead th")[heads.index("top-1")]
    for expected, direction in ((["third", "second", "first"], "descending"), (["first", "second", "third"], "ascending")):
        head.find_element(By.TAG_NAME, "button").click()
        assert column(table, 0) == expected and head.get_attribute("aria-sort") == direction, column(table, 0)
    # The legend of all plots.
    find("[aria-label='Runs'] .legend button, .legend[aria-label='Runs'] button").click()
    for i in range(js("return lockstepReport.charts.length")):
        assert js(f"return lockstepReport.charts[{i}].graph.visibility()") == [False, True, True]


def details_of_a_run_are_shown(folder):
    load(one_page(folder))
    text = js("return document.getElementById('content').textContent")
    for expected in ("n2", "2.5 times", "250 ms", "0.1 → 0.2", "oneDNN", "planned", "8.0 MB", "12.0 MB", "85.00 %", "--lr", "cat"):
        assert expected in text, f"the page does not show {expected}"
    marks = js("return document.querySelectorAll('.timeline svg .mark').length")
    assert marks == 3 + 3 + 2 + 2 + 1, marks
    assert "step 40: resumed on 4 ranks" in js("return document.querySelector('.timeline svg').textContent")
    assert "Every recorded step is shown" in find("#decimation").text
    field = find("input[type=search]")
    js("arguments[0].scrollIntoView({block: 'center'})", field)
    field.send_keys("seed")
    assert column(find("table[aria-label='Options']"), 0) == ["--seed"]


def curves_of(title):
    """Name and points of each curve of a plot."""
    return js(f"return lockstepReport.charts[{chart_number(title)}].all.map(each => [each.name, each.points])")


def values_of_a_study_are_those_of_its_results(folder):
    load(page_of_a_study(folder))
    results = {}
    for file in sorted((folder / "study").glob("*.json")):
        mode, nodes, _ = file.stem.split("-")
        results.setdefault((mode, int(nodes)), []).append(json.loads(file.read_text()))
    points = [point for point in js("return lockstepReport.data.study.points")]
    assert len(points) == 7 and [point["mode"] for point in points] == ["weak"] * 4 + ["strong"] * 3

    def median(values):
        return sum(sorted(values)[(len(values) - 1) // 2:len(values) // 2 + 1]) / (2 - len(values) % 2)

    def measured(mode, nodes, value):
        values = [value(result) for result in results[mode, nodes]]
        return [min(values), median(values), max(values)]

    def rate(result):
        return result["images_per_second"]

    rates, efficiencies = dict(curves_of("Images/s")), dict(curves_of("Efficiency"))
    for mode, nodes in results:
        x = math.log2(nodes)
        first = measured(mode, 1, rate)[1]
        point = next(point for point in points if (point["mode"], point["nodes"]) == (mode, nodes))
        for curves, name, expected in (
                (rates, mode, measured(mode, nodes, rate)), (rates, f"{mode}, ideal", [first * nodes] * 3),
                (rates, f"{mode}, predicted", [point["predicted"]["images_per_second"]] * 3),
                (efficiencies, mode, [100 * value / nodes / first for value in measured(mode, nodes, rate)]),
                (efficiencies, f"{mode}, ideal", [100] * 3),
                (efficiencies, f"{mode}, predicted", [100 * point["predicted"]["efficiency"]] * 3)):
            shown = dict(map(lambda at: (round(at[0], 9), at[1]), curves[name]))[round(x, 9)]
            assert all(map(math.isclose, shown, expected)), (name, nodes, shown, expected)
        exposed = measured(mode, nodes, lambda result: result["exposed_communication_seconds"])[1]
        computing = measured(mode, nodes, lambda result: result["step_seconds_median"] - result["exposed_communication_seconds"])[1]
        parts = dict(curves_of(f"Time of a step, {mode}"))
        hidden = 0.004 * nodes if mode == "weak" else 0  # unknown
        expected_parts = {"communication, not hidden": exposed, "computing": computing - hidden,
                          **({"computing, with communication behind it": hidden} if hidden else {})}
        assert parts.keys() == expected_parts.keys(), parts.keys()
        for name, expected in expected_parts.items():
            shown = next(value for at, value in parts[name] if math.isclose(at, x, abs_tol=1e-9))
            assert math.isclose(shown, 1000 * expected), (name, shown, expected)
    assert len(rates) == len(efficiencies) == 6 and len(rates["weak"]) == 4 and len(rates["strong"]) == 3

    # What the keyboard reads, the table, and what is missing.
    element = plot("Efficiency")
    js("arguments[0].focus()", element)
    element.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert find(".legend .at").text == "at 2 nodes", find(".legend .at").text
    expected = [100 * value / 2 / measured("weak", 1, rate)[1] for value in measured("weak", 2, rate)]
    assert legend_of("Efficiency")["weak"] == "{1:.1f} % ({0:.1f} % to {2:.1f} %)".format(*expected), legend_of("Efficiency")
    table = find("table[aria-label='Points']")
    assert column(table, 1) == ["1", "2", "4", "8", "1", "2", "4"] and column(table, -1)[:3] == ["2 of 2", "2 of 2", "1 of 2"], column(table, -1)
    assert column(table, 4)[1] == f"{measured('weak', 2, rate)[1]:,.1f}", column(table, 4)
    assert "weak-0004-2 is missing" in find(".notice").text
    labels = js(f"return lockstepReport.charts[{chart_number('Images/s')}].graph.layout_.xticks.map(tick => tick.label)")
    assert labels == ["1", "2", "4", "8"], labels


def a_study_without_results_is_shown(folder):
    (folder / "one").mkdir()
    (folder / "one/points").write_text("weak 1 1\n")
    run(["report", folder / "one", "-o", folder / "one.html"], expect=1)
    load(folder / "one.html")
    assert "weak-0001-1 is missing" in find(".notice").text
    (folder / "one/weak-0001-1.json").write_text('{"images_per_second":1,"step_seconds_median":1,"exposed_communication_seconds":0,"ranks":1,'
                                                 f'"global_batch":1,"model":{json.dumps(SCRIPT)}}}')
    run(["report", folder / "one", "-o", folder / "one.html"])
    load(folder / "one.html")
    assert js("return window.hacked") is None and SCRIPT in find("#subtitle").text
    assert curves_of("Images/s") == [["weak", [[0, [1, 1, 1]]]], ["weak, ideal", [[0, [1, 1, 1]]]]]


def text_of_a_run_is_never_html(folder):
    made = make_run(folder / SCRIPT.replace("/", "\u2215"), [{**events_of_a_run()[0], "model": SCRIPT, "hosts": SCRIPT, "engine": SCRIPT},
                    *events_of_a_run()[1:], {"event": "straggler", "step": 61, "host": SCRIPT, "rank": 1, "factor": 2}, {"event": "stop", "step": 61, "reason": SCRIPT}],
                    f"data={SCRIPT}\nmodel={SCRIPT}\n")
    (made / "confusion.csv").write_text(f"true class,{SCRIPT},b\n{SCRIPT},1,2\nb,3,4\n")
    other = make_run(folder / "other", events_of_a_run(), "data=x\n")
    for runs in ([made], [made, other]):
        run(["report", *runs, "-o", folder / "page.html"])
        load(folder / "page.html")
        assert js("return window.hacked") is None
        assert js("return document.querySelectorAll('img, main script').length") == 0
        assert "window.hacked" in js("return document.getElementById('content').textContent")
    assert "window.hacked" in BROWSER.find_element(By.CSS_SELECTOR, ".legend .name").text


def empty_and_damaged_runs_are_shown(folder):
    empty = make_run(folder / "empty", [], "")
    lost = make_run(folder / "lost", [{"event": "step", "step": s, "loss": None if s > 5 else 1 / s} for s in range(1, 9)], "lr=0.1\n")
    with open(lost / "metrics.jsonl", "a") as file:
        file.write('{"event":"st')
    for name, runs, expected in (("empty", [empty], "no step is recorded yet"), ("lost", [lost], "3 recorded steps with a loss that is not finite"),
                                 ("lost", [lost], "is incomplete"), ("both", [empty, lost], "lost: the last line")):
        run(["report", *runs, "-o", folder / f"{name}.html"])
        load(folder / f"{name}.html")
        assert expected in find(".notice").text, find(".notice").text
    load(folder / "lost.html")
    values = js(f"return lockstepReport.charts[{chart_number('Loss')}].all[0].points.map(point => Number.isFinite(point[1][1]))")
    assert values == [True] * 5 + [False] * 3


def merged_steps_keep_their_extremes(folder):
    lines = [{"event": "step", "step": s, "samples": s, "loss": 50 if s == 4321 else 1} for s in range(1, 9001)]
    run(["report", make_run(folder / "run", lines, ""), "-o", folder / "page.html"])
    load(folder / "page.html")
    assert "9,000 recorded steps, 8 merged in each point" in find("#decimation").text
    points = js(f"return lockstepReport.charts[{chart_number('Loss')}].all[0].points")
    assert len(points) == 1125 and max(high for _, (_, _, high) in points) == 50 and min(low for _, (low, _, _) in points) == 1
    assert max(mean for _, (_, mean, _) in points) == (50 + 7) / 8


def paper_is_white_and_shows_all_plots(folder):
    load(one_page(folder), theme="dark")
    js("window.addEventListener('beforeprint', () => { window.printed = [document.documentElement.dataset.theme, "
       "lockstepReport.charts[0].graph.width_, document.body.getBoundingClientRect().width]; })")
    pdf = base64.b64decode(BROWSER.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert pdf.startswith(b"%PDF")
    theme, plot_width, page_width = js("return window.printed")
    assert theme == "light" and plot_width < page_width <= 700, (theme, plot_width, page_width)
    assert js("return document.documentElement.dataset.theme") == "dark"


def axe_finds_no_barrier(folder):
    package = importlib.util.find_spec("axe_playwright_python")
    if package is None:
        raise Skipped("no axe-core (scripts/install-dependencies tests)")
    axe = pathlib.Path(package.origin).with_name("axe.min.js").read_text()
    for page in (one_page(folder), page_of_three(folder), page_of_a_study(folder)):
        for theme in ("light", "dark"):
            load(page, theme=theme)
            js(axe)
            found = BROWSER.execute_async_script("const done = arguments[0]; axe.run().then(result => done(result.violations.map("
                                                 "each => `${each.id}: ${each.help}: ${each.nodes.map(node => node.html).slice(0, 3)}`)))")
            assert not found, (page.name, theme, found)


if __name__ == "__main__":
    try:
        main([pages_load_without_a_message, plotted_values_are_those_of_the_run, the_x_axis_changes_and_zooms, the_keyboard_reads_and_zooms,
              legends_toggle_and_axes_become_logarithmic, runs_are_compared_and_folded, details_of_a_run_are_shown,
              values_of_a_study_are_those_of_its_results, a_study_without_results_is_shown, text_of_a_run_is_never_html,
              empty_and_damaged_runs_are_shown, merged_steps_keep_their_extremes, paper_is_white_and_shows_all_plots, axe_finds_no_barrier])
    finally:
        BROWSER.quit()
