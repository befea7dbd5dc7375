#!/usr/bin/env python3
"""Tests the text of the job scripts, how they handle the launcher's statuses, and the scaling study."""

import functools
import itertools
import operator

from slurm_harness import *  # noqa: F403


# The functions of the job scripts alone, in a shell that counts as Slurm's copy of a script and does not say why it ends.
SOURCE = f"source {SCRIPTS}/job.sh; on_exit() {{ :; }}; is_batch() {{ :; }}; introduced=1"


def shellcheck_finds_nothing(folder):
    if shutil.which("shellcheck") is None:
        print("skipped: shellcheck_finds_nothing: no shellcheck here")
        return
    scripts = [path for pattern in ("*.sbatch", "*.sh", "machines/*.env", "schedulers/*.sh", "other/*") for path in SCRIPTS.glob(pattern)]
    assert len(scripts) == 18, scripts
    command("shellcheck", "-x", *sorted(scripts))


def each_machine_loads_and_starts_by_slurm_or_mpirun(folder):
    for machine in sorted(SCRIPTS.glob("machines/*.env")):
        text = f"{SOURCE}; load_machine {machine.stem}; echo $launcher ${{srun_options[@]}} + ${{mpirun_options[@]}}, stage=$stage,"
        output = command("bash", "-c", text, env={"SLURM_CPUS_PER_TASK": "3", "SLURM_NTASKS_PER_NODE": "2", "TMPDIR": "/login-node"})
        assert output.startswith("srun --export=ALL ") and " --mpi=pmix " in output and "--cpus-per-task=3" in output, output
        assert ", stage=," in output, output
        assert "gpus-per-task" not in output, output


def by_mpirun(folder, machine):
    """A copy of the machine's file with mpirun as the launcher."""
    file = folder / f"{machine.stem}-mpirun.env"
    file.write_text(f"source {machine}\nlauncher=mpirun\n")
    return file


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return path


def each_launcher_gets_options_that_it_supports(folder):
    """Compares the options that place ranks with the launcher's version, for each MPI."""
    open_mpi, hydra = "--map-by ppr:2:node:pe=3 --bind-to core", "-ppn 2 -bind-to core:3"
    versions = (("mpirun (Open MPI) 4.1.6", open_mpi), ("mpirun (Open MPI) 5.0.7", open_mpi), ("prterun (PRRTE) 3.0.8", open_mpi),
                ("HYDRA build details:\n    Version:  4.2.1", hydra),
                ("Intel(R) MPI Library for Linux* OS, Version 2021.13 Build 20240701", "-ppn 2"), ("mpiexec version 1.2.12", ""))
    for name in ("sed", "grep", "awk", "env"):
        (folder / "tools").mkdir(exist_ok=True)
        (folder / "tools" / name).symlink_to(shutil.which(name))
    for i, (version, options) in enumerate(versions):
        # Open MPI's daemons on other nodes may not have the variables of the machine's file.
        passed_on = "-x OMP_PLACES -x OMP_PROC_BIND -x OMP_WAIT_POLICY" if options == open_mpi else ""
        for name in ("mpirun", "mpiexec"):
            fake = program(folder / f"{name}-{i}" / name, f"echo '{version}'; printf '%s\\n' \"$*\" >&2")
            machine = by_mpirun(folder, SCRIPTS / "machines" / "cpu.env")
            done = subprocess.run(["/bin/bash", "-c", f"{SOURCE}; load_machine {machine}; launch x; echo $launcher"],
                                  capture_output=True, text=True, timeout=60,
                                  env={"PATH": f"{fake.parent}:{folder}/tools", "LOCKSTEP_SLURM": str(SCRIPTS), "SLURM_JOB_NUM_NODES": "2",
                                       "SLURM_NTASKS_PER_NODE": "2", "SLURM_CPUS_PER_TASK": "3"})
            assert done.stderr.strip().split("\n")[-1] == " ".join(f"-n 4 {options} {passed_on} x".split()), (version, done)
            assert done.stdout.splitlines()[-1] == name, done
            assert ("unknown MPI" in done.stdout) == (not options), done
    none = command("/bin/bash", "-c", f"{SOURCE}; load_machine {by_mpirun(folder, SCRIPTS / 'machines/cpu.env')}",
                   env={"PATH": f"{folder}/tools"}, expect=66)
    assert "neither mpirun nor mpiexec is in PATH" in none, none


def each_machine_binds_the_requested_number_of_ranks_by_mpirun(folder):
    """Requests a number of ranks in total, a number per node, and fewer in total than per node."""
    cores = min(2, len(os.sched_getaffinity(0)))
    settings = {"LOCKSTEP_SLURM": str(SCRIPTS), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "SLURM_JOB_NUM_NODES": "1"}
    asked = ((1, cores, {"SLURM_NTASKS": "1"}), (cores, 1, {"SLURM_NTASKS_PER_NODE": str(cores)}),
             (1, 1, {"SLURM_NTASKS": "1", "SLURM_NTASKS_PER_NODE": "2"}))
    launchers = {"Open MPI": os.environ["PATH"]}
    if shutil.which("mpirun.mpich"):
        program(folder / "mpich" / "mpirun", 'exec mpirun.mpich "$@"')
        launchers["MPICH"] = f"{folder}/mpich:{os.environ['PATH']}"
    else:
        print("skipped: MPICH's launcher is not here (install mpich)")
    for machine, (mpi, path) in itertools.product(sorted(SCRIPTS.glob("machines/*.env")), launchers.items()):
        text = (f"{SOURCE}; load_machine {by_mpirun(folder, machine)}; "
                "launch grep Cpus_allowed: /proc/self/status")
        for ranks, width, extra in asked:
            done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=60,
                                  env={**os.environ, **settings, **extra, "SLURM_CPUS_PER_TASK": str(width), "PATH": path})
            masks = [int(line.split()[-1].replace(",", ""), 16) for line in done.stdout.splitlines()]
            assert len(masks) == ranks and all(bin(mask).count("1") >= width for mask in masks), (machine, mpi, extra, done)
            assert sum(masks) == functools.reduce(operator.or_, masks), f"ranks share cores: {machine}, {done}"
        text = f"{SOURCE}; load_machine {by_mpirun(folder, machine)}; echo $tasks ${{mpirun_options[@]}}"
        output = command("bash", "-c", text, env={"SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS": "5", "PATH": path})
        assert output.startswith("5 --map-by ppr:3:node:pe=1 " if mpi == "Open MPI" else "5 -ppn 3 "), output


def a_signal_while_the_ranks_start_reaches_them(folder):
    program(folder / "mpirun", "[ \"$1\" != --version ] || exit 0\ntrap 'exit 75' USR1\nfor i in {1..200}; do sleep 0.1; done")
    # Signals between the start of the launcher and the moment when the script knows its process id.
    (folder / "script").write_text(f"{SOURCE}; "
                                    f"load_machine {by_mpirun(folder, SCRIPTS / 'machines/generic.env')}; set -T\n"
                                   "trap '[[ $BASH_COMMAND != \"ranks=\\$!\" ]] || kill -USR1 $$' DEBUG\n"
                                   "launch; trap - DEBUG; echo status $status\n")
    output = command("bash", folder / "script", env={"PATH": f"{folder}:{os.environ['PATH']}"})
    assert "SIGUSR1: asking" in output, output
    # 138 if the launcher had not started yet; the run resumes after both.
    assert re.search(r"^status (75|138)$", output, re.MULTILINE), output


def shards_are_staged_if_the_machine_sets_stage(folder):
    for stage, options, expected in (("/disk", "--data d", "--data d --stage-dir /disk"), ("", "--data d", "--data d"),
                                     ("/disk", "--data d --stage-dir /other", "--data d --stage-dir /other"),
                                     ("/disk", "--synthetic", "--synthetic")):
        text = f"{SOURCE}; stage={stage}; training=({options}); use_stage; echo \"${{training[*]}}\""
        assert command("bash", "-c", text).strip() == expected, (stage, options)


def variables_of_this_job_are_kept(folder):
    """Of jobs with GPUs and without, in the words of Slurm 22.05 and 24.11."""
    gpus = {"SLURM_JOB_GPUS": "0,1", "SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "0,1", "SLURM_GPUS_PER_NODE": "2"}
    for facts, variables, dropped in (
            ("TRES=cpu=4,node=1,billing=4,gres/gpu=2 TresPerNode=gres:gpu:2", gpus, set()),
            ("ReqTRES=cpu=4 AllocTRES=cpu=4,gres/gpu=2 TresPerNode=gres/gpu:2", gpus, set()),
            ("TRES=cpu=4 TresPerNode=gres:gpu:a100:2", {**gpus, "SLURM_GPUS_PER_NODE": "a100:2"}, set()),
            ("ReqTRES=cpu=4 AllocTRES=cpu=4", gpus, set(gpus)),
            ("TresPerTask=cpu=8 CPUs/Task=8 ReqB:S:C:T=0:0:*:1 NtasksPerN:B:S:C=4:0:2:1",
             {"SLURM_TRES_PER_TASK": "cpu=8", "SLURM_CPUS_PER_TASK": "8", "SLURM_THREADS_PER_CORE": "1", "SLURM_NTASKS_PER_NODE": "4",
              "SLURM_NTASKS_PER_SOCKET": "2", "SLURM_NTASKS_PER_CORE": "1"}, set()),
            ("CPUs/Task=1 ReqB:S:C:T=0:0:*:* NtasksPerN:B:S:C=0:0:*:*",
             {"SLURM_TRES_PER_TASK": "cpu=8", "SLURM_CPUS_PER_TASK": "8", "SLURM_THREADS_PER_CORE": "1", "SLURM_NTASKS_PER_SOCKET": "2"},
             {"SLURM_TRES_PER_TASK", "SLURM_CPUS_PER_TASK", "SLURM_THREADS_PER_CORE", "SLURM_NTASKS_PER_SOCKET"})):
        program(folder / "scontrol", f"echo 'JobId=7 JobName=a UserId=me(0) JobState=RUNNING Restarts=0 Requeue=1 {facts} Power='")
        done = subprocess.run(["bash", "-c", f"{SOURCE}; env"], capture_output=True, text=True, timeout=60,
                              env={**variables, "SLURM_JOB_ID": "7", "PATH": f"{folder}:{os.environ['PATH']}"})
        left = {line.split("=")[0] for line in done.stdout.splitlines()} & set(variables)
        assert left == set(variables) - dropped, (facts, done.stdout)


def a_full_disk_under_the_log_changes_no_end(folder):
    text = f"source {SCRIPTS}/job.sh; f() {{ local -; set -e; say lost; pass_on USR1; end 0 done; }}; f; exit 3"
    with open("/dev/full", "w") as full:
        done = subprocess.run(["bash", "-c", text], stdout=full, stderr=subprocess.DEVNULL, timeout=60, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0, done


def limits_that_are_no_numbers_are_refused_at_the_start(folder):
    output = command("bash", "-c", f"{SOURCE}; load_machine generic", env={"LOCKSTEP_MAX_RESTARTS": "few"}, expect=64)
    assert "max_restarts=few" in output and "give numbers" in output, output


def only_crashes_of_this_submission_count(folder):
    for earlier, expected in (("7", "@submitted"), ("8", "a rank crashed or ran out of memory again, after 2 restarts")):
        run_dir = folder / earlier
        run_dir.mkdir()
        (run_dir / "restarts").write_text("".join(f"{earlier} 139 step-0000000{n}.h5 2026-11-25T00:00:00 crash\n" for n in (1, 2)))
        text = (f"{SOURCE}; load_machine {SCRIPTS}/machines/generic.env; lockstep=({LOCKSTEP}) status=139 warned= log_size=0; "
                f"why_not_again() {{ reason=; }}; submit_again() {{ echo @submitted; }}; finish {run_dir}")
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "SLURM_JOB_ID": "8", "LOCKSTEP_SLURM": str(SCRIPTS)})
        assert expected in done.stdout + done.stderr, (earlier, done)


def what_slurm_said_of_an_earlier_launch_is_not_the_cause_of_a_later_end(folder):
    program(folder / "scontrol", "echo 'JobId=7 JobName=a UserId=me(0) JobState=RUNNING Reason=None Restarts=0 Requeue=1 Power='")
    text = (f"{SOURCE}; echo 'slurmstepd-n1: error: Detected 1 oom_kill event in StepId=7.0.' >&2; why_not_again; echo \"= $cause\"; "
            "echo 'the next launch' >&2; why_not_again; echo \"= $cause\"")
    with open(folder / "errors", "a") as errors:
        done = subprocess.run(["bash", "-c", text], stdout=subprocess.PIPE, stderr=errors, text=True, timeout=60,
                              env={"SLURM_JOB_ID": "7", "PATH": f"{folder}:{os.environ['PATH']}"})
    assert re.findall("^= (.*)$", done.stdout, re.M) == ["out of memory", ""], done


def a_preempted_run_is_not_stalled(folder):
    """However often it is preempted before its first checkpoint."""
    for cause, expected in (("preemption", "@submitted"), ("", "still at checkpoint none after 2 restarts")):
        run_dir = folder / (cause or "none")
        run_dir.mkdir()
        (run_dir / "restarts").write_text("8 75 none 2026-11-25T00:00:00\n" * 2)
        text = (f"{SOURCE}; load_machine {SCRIPTS}/machines/generic.env; lockstep=({LOCKSTEP}); status=75 warned=TERM run_dir={run_dir}; "
                f"why_not_again() {{ reason='' cause='{cause}'; }}; submit_again() {{ echo @submitted; }}; finish {run_dir}")
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "SLURM_JOB_ID": "8", "LOCKSTEP_SLURM": str(SCRIPTS)})
        assert expected in done.stdout + done.stderr and done.returncode == 75, (cause, done)
        assert ("preempted" in (run_dir / "restarts").read_text()) == bool(cause), (run_dir / "restarts").read_text()


def settings_of_restarts_within_a_job_are_checked(folder):
    for settings, status, expected in (({"SPARE_NODES": "2"}, 64, "spare_nodes=2 of 2 nodes"), ({"SPARE_NODES": "few"}, 64, "spare_nodes=few"),
                                       ({"SPARE_NODES": "1", "MIN_NODES": "0"}, 64, "min_nodes=0"),
                                       ({"SPARE_NODES": "1", "MIN_NODES": "2"}, 64, "min_nodes=2 (the ranks have 1 nodes)"),
                                       ({}, 0, "2 nodes, 4 ranks on 0"), ({"SPARE_NODES": "1"}, 0, "1 nodes, 2 ranks on 1"),
                                       ({"SPARE_NODES": "0"}, 0, "2 nodes, 4 ranks on 2")):
        text = (f"{SOURCE}; load_machine {SCRIPTS}/machines/generic.env; run_dir=/nonexistent configuration=accumulate=1; guard() {{ :; }}; "
                "allocated_nodes() { printf '%s\\n' n1 n2; }; reserve_spares; echo $nodes nodes, $tasks ranks on ${#chosen[@]}")
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "LOCKSTEP_SLURM": str(SCRIPTS), "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS_PER_NODE": "2",
                                   **{f"LOCKSTEP_{name}": value for name, value in settings.items()}})
        assert done.returncode == status and expected in done.stdout + done.stderr, (settings, done)


def nodes_are_left_out_for_a_reason(folder):
    """Of n1 to n5, of which n2 to n5 ran four ranks, each with its log."""
    gone, late = "is gone (its node does not answer; last heard of in data)", "has been late for 60 s in data of step 7"
    cases = (
        # What the logs of the ranks say of a node, what Slurm knows, the earlier restarts of job 7, nodes for the ranks; left out, chosen
        ("all names", {0: "n3", 2: "n3", 3: "n3"}, gone, "", "", 4, "n3", "n1 n2 n4 n5"),
        ("a node that is cut off", {1: "n2"}, gone, "", "", 4, "", "n2 n3 n4 n5"),
        ("Slurm", {}, gone, "unhealthy_nodes() { echo n2; }", "", 4, "n2", "n1 n3 n4 n5"),
        ("a silent one", {}, gone, "answering_nodes() { printf '%s\\n' n1 n2 n3 n4; }", "", 4, "n5", "n1 n2 n3 n4"),
        ("a silent spare", {0: "n3", 2: "n3", 3: "n3"}, gone, "answering_nodes() { printf '%s\\n' n2 n3 n4 n5; }", "", 4, "n3 n1", "none"),
        ("a fewest number", {0: "n3", 2: "n3", 3: "n3"}, gone, "min_nodes=3; answering_nodes() { printf '%s\\n' n2 n4 n5; }", "", 4,
         "n3 n1", "n2 n4 n5"),
        ("no answer at all", {}, gone, "answering_nodes() { :; }", "", 4, "", "n2 n3 n4 n5"),
        ("late once", {0: "n3", 2: "n3", 3: "n3"}, late, "", "8 70 none 2026-11-25T00:00:00 in-job named=n3", 4, "", "n2 n3 n4 n5"),
        ("late twice", {0: "n3", 2: "n3", 3: "n3"}, late, "", "7 70 none 2026-11-25T00:00:00 in-job named=n2,n3", 4, "n3", "n1 n2 n4 n5"),
        ("late without a spare", {0: "n3", 2: "n3", 3: "n3"}, late, "", "7 70 none 2026-11-25T00:00:00 in-job named=n3", 5, "",
         "n1 n2 n3 n4 n5"),
        ("slow", {0: "n4"}, "is slow: 2.0 times the median rank's; exclude it with --exclude=n4", "replace_slow=1", "", 4, "n4", "n1 n2 n3 n5"),
        ("slow, not asked", {0: "n4"}, "is slow: 2.0 times the median rank's; exclude it with --exclude=n4", "", "", 4, "", "n2 n3 n4 n5"),
    )
    for i, (name, says, what, knows, before, wanted, left_out, chosen) in enumerate(cases):
        run_dir = folder / str(i)
        (run_dir / "log").mkdir(parents=True)
        (run_dir / "restarts").write_text(before + "\n")
        for rank in range(4):
            host = says.get(rank)
            (run_dir / "log" / f"rank-{rank:05}.log").write_text(
                f"2026-11-25 09:59:59.999 E rank 3 (n5) {gone}\n2026-11-25 10:00:00.100 I rank {rank} of 4\n" +
                (f"2026-11-25 10:30:00.000 E no progress: rank 1 ({host}, GPU-1) {what}; rank 3 (n5) waits\n" if host else ""))
        text = (f"{SOURCE}; load_machine {SCRIPTS}/machines/generic.env; lockstep=({LOCKSTEP}) run_dir={run_dir} wanted={wanted}\n"
                f"status=70 ending=(--job 7 --since '2026-11-25 10:00:00') ranks_a_node=1 chosen=(n2 n3 n4 n5) newly_left_out=()\n"
                "allocated_nodes() { printf '%s\\n' n1 n2 n3 n4 n5; }; unhealthy_nodes() { :; }; answering_nodes() { printf '%s\\n' \"$@\"; }\n"
                f"{knows}\nchoose_nodes; ask_restart; restarts_here || chosen=(none); echo \"= ${{left_out[*]}} / ${{chosen[*]}}\"")
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "LOCKSTEP_SLURM": str(SCRIPTS), "SLURM_JOB_ID": "7"})
        assert done.stdout.splitlines()[-1:] == [f"= {left_out} / {chosen}"], (name, done)


def fewer_ranks_keep_the_global_batch(folder):
    """Explicitly, if there is no checkpoint that has it."""
    (folder / "checkpoints").mkdir()
    for nodes, checkpoint, expected in ((4, False, "--batch-size 4 --lr 1"), (3, True, "--batch-size 4 --lr 1"),
                                        (3, False, "--batch-size 4 --lr 1 --override --global-batch-size 64")):
        (folder / "checkpoints" / "latest").unlink(missing_ok=True)
        if checkpoint:
            (folder / "checkpoints" / "latest").symlink_to("step-00000007.h5")
        text = (f"{SOURCE}; lockstep=({LOCKSTEP}) run_dir={folder} wanted=4 ranks_a_node=2 nodes={nodes} training=(--batch-size 4 --lr 1); "
                "configuration=$'batch-size=4\\nglobal-batch-size=0\\naccumulate=2'; "
                "keep_global_batch; echo ${training[*]}")
        assert command("bash", "-c", text).strip() == expected, (nodes, checkpoint)


def a_restart_that_cannot_be_counted_is_none(folder):
    """Nothing is written through links in a run directory."""
    made, victim = folder / "run", folder / "victim"
    made.mkdir()
    text = (f"{SOURCE}; lockstep=({LOCKSTEP}) status=70 launcher=srun max_restarts=50 stalled_restarts=1 crash_restarts=2 machine=x ways_again=x; "
            f"submit_again() {{ :; }}; why_not_again() {{ reason=; }}; finish {made}; echo no")
    victim.write_text("kept")
    for link in (pathlib.Path.symlink_to, pathlib.Path.hardlink_to):
        link(made / "restarts", victim)
        done = subprocess.run(["bash", "-c", text], env={**os.environ, "SLURM_JOB_ID": "7"}, capture_output=True, text=True, timeout=60)
        assert done.returncode == 70 and victim.read_text() == "kept", done
        assert re.search(r"cannot write .*/restarts \(.*\); .*; not submitted again$", done.stderr.strip()), done
        (made / "restarts").unlink()
    lockstep = program(folder / "absent" / "lockstep", "echo 'error while loading shared libraries: libmpi.so.40' >&2; exit 127")
    done = subprocess.run(["bash", "-c", text.replace(str(LOCKSTEP), str(lockstep))], env={**os.environ, "SLURM_JOB_ID": "7"},
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 70 and "libmpi.so.40); not submitted again" in done.stderr, done


def success_without_a_rank_is_a_failure(folder):
    """Slurm's srun has been seen to return 0 after `task launch failed`."""
    script = script_for(folder, folder / "run-none", "--nodes=1 --ntasks-per-node=1 --time=60")
    machine = script.parent / "virtual.env"
    (script.parent / "absent").write_text(f'#!/bin/bash\n[[ "$*" != *--print-config* && $1 != --version && $1 != restart ]] || exec {LOCKSTEP} "$@"\n')
    (script.parent / "absent").chmod(0o755)
    machine.write_text(machine.read_text() + f"lockstep=({script.parent}/absent)\n")
    log = submit(script, env={"TEST_MAX_RESTARTS": "0"}).end("FAILED", status=70, restarts=0)
    assert "no rank has started" in log, log


def scaling_runs_on_one_two_and_four_nodes(folder):
    line = "training=(--model mini-resnet --width 8 --image-size 12 --steps 3 --warmup 1 --threads 1) batch=8 repetitions=2"
    script = edited(folder, "scaling.sbatch", "--nodes=4 --ntasks-per-node=1 --time=60", line)
    # The launch of one point fails once.
    machine = folder / "virtual.env"
    failing = folder / "fails-once"
    failing.write_text(f'#!/bin/bash\n[ "$SLURM_NTASKS $SLURM_PROCID" = "2 0" ] && mkdir {folder}/failed 2>/dev/null && exit 70\n'
                       f'exec {LOCKSTEP} "$@"\n')
    failing.chmod(0o755)
    machine.write_text(machine.read_text() + f"lockstep=({failing})\nscratch={folder}\n")
    job = submit(script)
    log = job.end("FAILED", status=1, restarts=0)
    results = folder / f"scaling-{job.number}"
    assert (folder / "failed").exists() and "weak, 2 nodes, repetition 1: missing (status " in log, log
    table = [line.split() for line in (results / "scaling.txt").read_text().splitlines()]
    rows = {(words[0], words[1]): words for words in table if words and words[0] in ("weak", "strong")}
    assert sorted(rows) == sorted((mode, nodes) for mode in ("weak", "strong") for nodes in "124"), table
    assert [rows[("weak", n)][2:4] for n in "124"] == [["1", "8"], ["2", "16"], ["4", "32"]], table
    assert [rows[("strong", n)][2:4] for n in "124"] == [["1", "8"], ["2", "8"], ["4", "8"]], table
    assert rows[("weak", "1")][6:8] == ["100.0", "%"] and rows[("weak", "2")][-3:] == ["1", "of", "2"], table
    assert all(float(row[8]) > 0 for (_, nodes), row in rows.items() if nodes != "1"), f"no exposed communication: {table}"
    assert '"missing":["weak-0002-1"]' in (results / "scaling.html").read_text() or "no page" in log, log
    # A second job measures only the missing points.
    before = {file: file.stat().st_mtime_ns for file in results.glob("*.json")}
    again = submit(script, env={"LOCKSTEP_RESULTS": results})
    again.end(status=0, restarts=0)
    assert all(file.stat().st_mtime_ns == when for file, when in before.items()) and len(before) == 11, before


def a_point_that_hangs_is_missing(folder):
    script = edited(folder, "scaling.sbatch", "--nodes=1 --ntasks-per-node=1 --time=60", "training=() batch=8 repetitions=1")
    machine = folder / "virtual.env"
    machine.write_text(machine.read_text() + f"lockstep=({folder}/hangs)\nscratch={folder}\n")
    (folder / "hangs").write_text(f'#!/bin/bash\n[ "$1" = bench ] && exec sleep 600\nexec {LOCKSTEP} "$@"\n')
    (folder / "hangs").chmod(0o755)
    log = submit(script, env={"LOCKSTEP_POINT_SECONDS": "2"}).end("FAILED", status=1, restarts=0)
    assert re.search("weak, 1 nodes, repetition 1: missing .status 124", log), log
    # When it is asked to stop, it ends the current point and measures no other.
    job = submit(script)
    until(lambda: list(folder.glob(f"scaling-{job.number}/*.log")), job.report)
    command("scancel", "--batch", "-s", "USR1", job.number)
    log = job.end("FAILED", status=1, restarts=0)
    assert log.count(": missing (status") == 1, log


if __name__ == "__main__":
    main([shellcheck_finds_nothing, each_machine_loads_and_starts_by_slurm_or_mpirun,
          each_launcher_gets_options_that_it_supports,
          each_machine_binds_the_requested_number_of_ranks_by_mpirun, a_signal_while_the_ranks_start_reaches_them,
          shards_are_staged_if_the_machine_sets_stage,
          variables_of_this_job_are_kept, a_full_disk_under_the_log_changes_no_end,
          limits_that_are_no_numbers_are_refused_at_the_start, only_crashes_of_this_submission_count, what_slurm_said_of_an_earlier_launch_is_not_the_cause_of_a_later_end,
          a_preempted_run_is_not_stalled, settings_of_restarts_within_a_job_are_checked, nodes_are_left_out_for_a_reason,
          fewer_ranks_keep_the_global_batch, a_restart_that_cannot_be_counted_is_none,
          success_without_a_rank_is_a_failure, scaling_runs_on_one_two_and_four_nodes,
          a_point_that_hangs_is_missing])
