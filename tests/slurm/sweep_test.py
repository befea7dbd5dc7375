#!/usr/bin/env python3
"""Tests sweep.sbatch on a real Slurm: an array of runs named after their options, of which one is killed and one diverges."""

from slurm_harness import *  # noqa: F403

NAMES = ("lr-0.01_weight-decay-1e-4", "lr-0.02_momentum-0.8_weight-decay-1e-4", "lr-0.05_weight-decay-1e-4", "lr-1e30_weight-decay-1e-4")
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
    number = re.search(r"^array (\d+)$", output, re.M).group(1)
    for line, name in enumerate(NAMES, 1):
        assert re.search(rf"^ *{line}  {folder}/runs/{re.escape(name)} +to run$", output, re.M), output
    jobs = [Job(f"{number}_{i}", folder / f"slurm-{number}_{i}.out", folder / "runs" / name) for i, name in enumerate(NAMES, 1)]
    assert jobs[3].facts()["ArrayTaskThrottle"] == "2", jobs[3].facts()
    file.write_text("--lr 7\n")  # after submission, this changes nothing
    jobs[0].hold(MIDDLE, RANKS)
    jobs[0].signal(signal.SIGKILL, rank=0)
    jobs[0].release()
    for job, restarts in zip(jobs[:3], (1, 0, 0)):
        job.end(status=0, restarts=restarts)
    log = jobs[3].end("FAILED", status=69, restarts=0)
    assert re.search(rf"job [0-9_]+ \({re.escape(NAMES[3])}\): error: .* status 69", log), log
    options = [(job.run_dir / "config.ini").read_text().splitlines() for job in jobs]
    assert all("keep=2" in lines and "weight-decay=0.0001" in lines for lines in options), options
    assert "momentum=0.8" in options[1] and "lr=0.02" in options[1], options[1]
    table = command("bash", "-c", f"{LOCKSTEP} compare {folder}/runs/*")
    ends = [re.search(rf"^{re.escape(str(job.run_dir))} .* (\w+)$", table, re.M).group(1) for job in jobs]
    assert ends == 3 * ["finished"] + ["diverged"], table
    compared = command("bash", "-c", f"{LOCKSTEP} report {folder}/runs/* -o {folder}/report.html; cat {folder}/report.html")
    assert all(name in compared for name in NAMES) and '"diverged"' in compared, compared[:1000]
    only_what_has_not_finished_is_submitted_again(folder, script, file)


def only_what_has_not_finished_is_submitted_again(folder, script, file):
    def submitted(text, *options):
        file.write_text(text)
        output = command("env", "-C", folder, "bash", script, file, "--keep", 2, *options)
        runs = re.findall(rf"^ *\d+  {folder}/runs/(\S+) +(finished|to .*)$", output, re.M)
        left = [name for name, state in runs if state != "finished"]
        array = re.search(r"^array (\d+)$", output, re.M)
        assert (array is None) == ("all runs have finished" in output) == (left == []) and len(runs) == len(text.splitlines()) - text.count("#") - text.count("\n\n"), output
        if left:
            assert len(command("squeue", "-h", "-r", "-j", array.group(1)).splitlines()) == len(left), output
            command("scancel", array.group(1))
        return left

    # In another order, with other spellings, and with lines that the other lines do not know.
    extended = "".join(["--lr 0.3\n", *reversed(LINES.splitlines(True)[1:]), "--lr 0.01 --weight-decay 1e-3\n"])
    assert submitted(extended.replace("--lr=0.02 --weight-decay 1e-4", "--weight-decay=1e-4 --lr 0.02")) == \
        ["lr-0.3", NAMES[3], "lr-0.01_weight-decay-1e-3"]
    assert submitted("".join(LINES.splitlines(True)[:4])) == []
    # With a later end, the runs go on.
    assert submitted(LINES, "--max-steps", 5000) == list(NAMES)


def a_sweep_may_be_submitted_inside_a_job(folder):
    """In the shell of an allocation, also with variables of other schedulers, and in an element of another array."""
    script, _ = sweep_for(folder)
    for seed in (1, 2):  # different runs, since the second sweep does not submit what the first one has finished
        (folder / f"rates-{seed}.txt").write_text("".join(f"--lr 0.0{i} --max-steps 2 --seed {seed}\n" for i in (1, 2)))
    machine = folder / "virtual.env"
    machine.write_text(machine.read_text() + f'env -0 >{folder}/environment-${{SLURM_ARRAY_JOB_ID:-}}-${{SLURM_ARRAY_TASK_ID:-}}\n')
    start = f"bash {script} {folder}/rates-"
    allocation = command("env", "-C", folder, "salloc", "--nodes=1", "--cpus-per-task=2", "--mem-per-cpu=10", "--time=5", "bash", "-c", f"{start}1.txt",
                         env={"PBS_JOBID": "2[6].server", "PBS_O_WORKDIR": "/nonexistent", "LSB_JOBID": "3", "FLUX_URI": "local:///other"})
    (folder / "outer.sh").write_text(f"#!/bin/bash\n{start}2.txt\n")
    element = submit(folder / "outer.sh", "--array=7", "--ntasks=3", "--mem=50", f"--output={folder}/outer.out")
    Job(f"{element.number}_7", folder / "outer.out").end(status=0)
    numbers = [re.search(r"array (\d+)$", output, re.M).group(1) for output in (allocation, (folder / "outer.out").read_text())]
    for seed, number in enumerate(numbers, 1):
        for i in (1, 2):
            job = Job(f"{number}_{i}", folder / f"slurm-{number}_{i}.out", folder / "runs" / f"lr-0.0{i}_max-steps-2_seed-{seed}")
            job.end(status=0, restarts=0)
            assert job.facts()["NumNodes"] == "2" and job.facts()["NumTasks"] == "2", job.facts()
            assert (job.run_dir / "metrics.jsonl").exists(), job.report()
            variables = dict(word.split("=", 1) for word in (folder / f"environment-{number}-{i}").read_text().split("\0") if "=" in word)
            stale = {"SLURM_CPUS_PER_TASK", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_NODE", "SLURM_TASKS_PER_NODE"} & variables.keys()
            assert stale <= {"SLURM_TASKS_PER_NODE"} and variables["SLURM_JOB_ID"] == job.facts()["JobId"], variables
    assert element.number not in numbers, numbers
    assert "unset variables of another job, of: flux pbs lsf" in allocation, allocation


def a_bad_sweep_is_refused_before_it_is_submitted(folder):
    script, file = sweep_for(folder)

    def refused(text, status, *words, arguments=()):
        if text is not None:
            file.write_text(text)
        output = command("env", "-C", folder, "bash", script, file if text is not None else folder / "none", *arguments, expect=status)
        assert all(word in output for word in words), output

    refused(None, 66, "cannot read ", "nothing is submitted")
    refused("# nothing\n\n", 65, "no options in")
    refused("--lr 0.1\n--lr 0.2 --momentum 0.5\n--lr=0.1\n", 65, "same run ('--lr 0.1' and '--lr=0.1')")
    # 0.05 is the rate of line 3.
    refused("--seed 3\n--seed 3 --lr 0.05\n", 65, "same run ('--seed 3' and '--seed 3 --lr 0.05')")
    refused("--lr 0.1 --lr 0.2\n", 64, "--lr is given twice")
    refused("--lr 0.1\n--learning-rat 1\n", 64, "'--learning-rat 1' in", "cannot be trained with")
    refused("--lr 0.1 --run-dir elsewhere\n--lr 1\n", 64, "sets --run-dir")
    refused("--lr 0.1\n--lr 1\n", 64, "--max-parallel is '0'", arguments=["--max-parallel", 0])
    refused("--lr 0.1\n--lr 1\n", 64, "unknown option --lrr", arguments=["--lrr", 1])
    assert "usage: bash slurm/sweep.sbatch FILE" in command("bash", script, "--max-parallel", 2, file, expect=64)
    assert not command("squeue", "-h").strip(), command("squeue")
    file.write_text("--lr 0.1\n")
    log = submit(script, arguments=[file]).end("FAILED", status=64)
    assert "start it by: bash " in log and not (folder / "runs").exists(), log


if __name__ == "__main__":
    main([each_line_is_a_run_that_restarts_by_itself, a_sweep_may_be_submitted_inside_a_job, a_bad_sweep_is_refused_before_it_is_submitted])
