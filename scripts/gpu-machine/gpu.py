"""What nvidia-smi tells of the GPU: who uses it, and its clocks, power and throttling while stages ran."""

import datetime
import os
import statistics
import subprocess

GPU = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
COLUMNS = ("timestamp", "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "utilization.gpu")
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")  # newer and older drivers' name
EVERY = 200  # ms between samples
THROTTLING = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "thermal (software)", 0x40: "thermal (hardware)", 0x80: "power brake"}
BUSY = 10  # per cent
FIRST_PATIENCE, PATIENCE = 20, 3  # seconds; the first question may start the driver
SHARED_BY = "nvidia-cuda-mps-server"  # of MPS: is there whether or not anything runs
notes = {}  # what limits what this file tells


def ask(*options, patience=FIRST_PATIENCE):
    """Rows of cells; None if nvidia-smi fails, is not there, or has ever not answered in time."""
    if "silent" in notes:
        return None
    try:
        process = subprocess.Popen(["nvidia-smi", f"--id={GPU}", *options, "--format=csv,noheader,nounits"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        output = process.communicate(timeout=patience)[0]
    except OSError:
        return None
    except subprocess.TimeoutExpired:
        process.kill()  # and is not waited for: it may be stuck in the driver
        notes["silent"] = f"nvidia-smi did not answer within {patience} s and is not asked again; other processes on the GPU are not noticed"
        return None
    return [[cell.strip() for cell in line.split(",")] for line in output.splitlines() if line.strip()] if process.returncode == 0 else None


def others():
    """What uses the GPU while no stage does, in words; empty if nothing does; None if nvidia-smi does not tell."""
    processes, load = (ask(query, patience=PATIENCE) for query in ("--query-compute-apps=pid,process_name", "--query-gpu=utilization.gpu"))
    if processes is None or load is None:
        return None
    if any(row[-1].endswith(SHARED_BY) for row in processes):
        notes["shared"] = f"{SHARED_BY} is on the GPU, and does not count as a process that uses it"
        processes = [row for row in processes if not row[-1].endswith(SHARED_BY)]
    if processes:
        return "processes on the GPU: " + ", ".join(" ".join(row) for row in processes)
    percent = load[0][0] if load else ""
    # A process of another container is not listed.
    return f"the GPU is {percent} % busy with processes that nvidia-smi does not list" if percent.isdigit() and int(percent) > BUSY else ""


def sampler():
    """The command that prints a sample every 200 ms; None if nvidia-smi does not know the columns."""
    for reasons in REASONS:
        query = "--query-gpu=" + ",".join((*COLUMNS, reasons))
        if ask(query) is not None:
            return ["nvidia-smi", f"--id={GPU}", query, "--format=csv,noheader,nounits", f"--loop-ms={EVERY}"]
    return None


def samples(text):
    """(time, SM clock, power, load, reasons) of each complete line."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        try:
            when = datetime.datetime.strptime(cells[0], "%Y/%m/%d %H:%M:%S.%f").timestamp()
            found.append((when, float(cells[1]), float(cells[3]), float(cells[5]), int(cells[6], 16)))
        except (ValueError, IndexError):
            continue
    return found


def summary(found, begin, end):
    """Of the samples between two times of day: of those of a busy GPU, if it was ever busy."""
    chosen = [sample for sample in found if begin <= sample[0] <= end]
    chosen = [sample for sample in chosen if sample[3] >= BUSY] or chosen
    if not chosen:
        return None
    throttled = {name: sum(1 for sample in chosen if sample[4] & bit) / len(chosen) for bit, name in THROTTLING.items()}
    clocks, power = [sample[1] for sample in chosen], [sample[2] for sample in chosen]
    return {"samples": len(chosen), "sm_mhz": {"min": min(clocks), "median": statistics.median(clocks)},
            "watts": {"median": statistics.median(power), "max": max(power)},
            "throttled": {name: round(share, 3) for name, share in throttled.items() if share > 0}}
