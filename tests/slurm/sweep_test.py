#!/usr/bin/env python3
"""Tests sweep.sbatch on a real Slurm: an array of runs named after their options, of which one is killed and one diverges."""

from slurm_harness import *  # noqa: F403

NAMES = ("lr-0.01", "lr-0.02_momentum-0.8", "lr-0.05", "lr-1e30")
LINES = """\
# learning rates
--lr 0.01 --weight-decay 1e-4

--lr=0.02 --weight-decay 1e-4 --momentum 0.8
--lr 0.05 --weight-decay 1e-4
--lr 1e30 --weight-decay 1e-4
"""


def sweep_for(folder):
    """A user's copy of sweep.sbatch, and a file of options."""
    file = folder / "rates.txt"
    file.write_text(LINES)
    return edited(folder, "sweep.sbatch", f"--job-name=sweep {LAYOUT}", run_line(folder, folder / "runs")), file


def each_line_is_a_run_that_restarts_by_itself(folder):
    script, file = sweep_for(folder)
    output = command("env", "-C", folder, "bash", script, file, "--max-parallel", 2, "--keep", 2)
    number = re.search(r"array (\d+):\n", output).group(1)
    for name in NAMES:
        assert f"  {folder}/runs/{name}\n" in output, output
    jobs = [Job(f"{number}_{i}", folder / f"slurm-{number}_{i}.out", folder / "runs" / name) for i, name in enumerate(NAMES, 1)]
    assert jobs[3].facts()["ArrayTaskThrottle"] == "2", jobs[3].facts()
    file.write_text("--lr 7\n")  # after submission, this changes nothing
    jobs[0].hold(MIDDLE, RANKS)
    jobs[0].signal(signal.SIGKILL, rank=0)
    jobs[0].release()
    for job, restarts in zip(jobs[:3], (1, 0, 0)):
        job.end(status=0, restarts=restarts)
    log = jobs[3].end("FAILED", status=69, restarts=0)
    assert re.search(rf"job \d+ \({re.escape(NAMES[3])}\): error: .* status 69", log), log
    options = [(job.run_dir / "config.ini").read_text().splitlines() for job in jobs]
    assert all("keep=2" in lines and "weight-decay=0.0001" in lines for lines in options), options
    assert "momentum=0.8" in options[1] and "lr=0.02" in options[1], options[1]
    table = command("bash", "-c", f"{LOCKSTEP} compare {folder}/runs/*")
    ends = [re.search(rf"^{re.escape(str(job.run_dir))} .* (\w+)$", table, re.M).group(1) for job in jobs]
    assert ends == 3 * ["finished"] + ["diverged"], table
    compared = command("bash", "-c", f"{LOCKSTEP} report {folder}/runs/* -o {folder}/report.html; cat {folder}/report.html")
    assert all(name in compared for name in NAMES) and '"diverged"' in compared, compared[:1000]


def a_bad_sweep_is_refused_before_it_is_submitted(folder):
    script, file = sweep_for(folder)

    def refused(text, status, *words, arguments=()):
        if text is not None:
            file.write_text(text)
        output = command("env", "-C", folder, "bash", script, file if text is not None else folder / "none", *arguments, expect=status)
        assert all(word in output for word in words), output

    refused(None, 66, "cannot read the sweep", "usage: ")
    refused("# nothing\n\n", 65, "no options in")
    refused("--lr 0.1\n--lr 0.2 --momentum 0.5\n--lr=0.1\n", 65, "same run (lr-0.1)")
    refused("--lr 0.1\n--learning-rat 1\n", 64, "'--learning-rat 1' in", "cannot be trained with")
    refused("--lr 0.1 --run-dir elsewhere\n--lr 1\n", 64, "sets --run-dir")
    refused("--lr 0.1\n--lr 1\n", 64, "--max-parallel 0", arguments=["--max-parallel", 0])
    assert not command("squeue", "-h").strip(), command("squeue")


if __name__ == "__main__":
    main([each_line_is_a_run_that_restarts_by_itself, a_bad_sweep_is_refused_before_it_is_submitted])
