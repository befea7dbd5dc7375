#!/usr/bin/env python3
"""Tests the parts of a GPU bundle's run: its plan, the containment of its commands, its archive and what it learns from nvidia-smi."""

import json
import os
import random
import resource
import runpy
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import types

from installed import SOURCE, main
from runner import Skipped

MACHINE = SOURCE / "scripts/gpu-machine"
sys.path.insert(0, str(MACHINE))
sys.dont_write_bytecode = True

import attempt  # noqa: E402
import contain  # noqa: E402
import gpu  # noqa: E402
import planner  # noqa: E402
import results  # noqa: E402
import stages  # noqa: E402
from planner import CLEAN_UP, Stage, next_step  # noqa: E402


def fates(table, budget, missing, seconds):
    """Runs a plan without commands: `seconds` tells how long a stage takes. Returns [(name, begin, end)], [(name, reason)]."""
    started, skipped, elapsed, rest = [], [], 0.0, table
    while rest:
        step = next_step(rest, budget, elapsed, missing)
        skipped += [(stage.name, reason) for stage, reason in step.skipped]
        assert step.start or not step.rest, (step, elapsed)
        started += [(stage.name, elapsed, elapsed + min(limit, seconds(stage)) + CLEAN_UP * (seconds(stage) > limit))
                    for stage, limit in step.start]
        assert all(stage.least <= limit <= stage.most for stage, limit in step.start), step
        elapsed = max([elapsed, *(end for _, _, end in started[len(started) - len(step.start):])])
        rest = step.rest
    return started, skipped


def stages_start_in_their_order_while_time_is_left(_):
    table = tuple(Stage(name, least, most) for name, least, most in (("a", 5, 20), ("b", 30, 60), ("c", 10, 40), ("d", 1, 5)))

    started, skipped = fates(table, 50 + CLEAN_UP, {}, lambda stage: stage.most)
    assert [name for name, *_ in started] == ["a", "b"] and [name for name, _ in skipped] == ["c", "d"], (started, skipped)

    started, skipped = fates(table, 45 + CLEAN_UP, {}, lambda stage: stage.most)
    assert [name for name, *_ in started] == ["a", "c"], started
    assert skipped[0] == ("b", "it takes 30 s at least, and 25 s were left"), skipped


def a_stage_whose_needs_are_not_met_is_skipped_with_all_reasons(_):
    table = (Stage("a", 1, 2, needs=frozenset({"torch", "ncu"})), Stage("b", 1, 2, needs=frozenset({"ncu"})), Stage("c", 1, 2))

    started, skipped = fates(table, 100, {"torch": "no PyTorch", "ncu": "no ncu", "hosts": "no namespaces"}, lambda _: 1)
    assert skipped == [("a", "no ncu; no PyTorch"), ("b", "no ncu")] and [name for name, *_ in started] == ["c"], (started, skipped)


def neighbours_that_share_the_machine_run_side_by_side_and_others_alone(_):
    table = tuple(Stage(name, 1, 10, shares=name in "bcef") for name in "abcdefg")

    started, _ = fates(table, 1000, {}, lambda _: 10)
    begins = {}
    for name, begin, _ in started:
        begins.setdefault(begin, []).append(name)
    assert list(begins.values()) == [["a"], ["b", "c"], ["d"], ["e", "f"], ["g"]], begins


def random_tables_keep_order_and_budget_and_give_each_stage_one_fate(_):
    choose = random.Random(7)
    alone_and_beside = 0
    for _ in range(3000):
        table = []
        for index in range(choose.randrange(1, 12)):
            least = choose.uniform(0, 60)
            table.append(Stage(str(index), least, least + choose.uniform(0, 100), shares=choose.random() < 0.4,
                               needs=frozenset(choose.sample(["w", "x", "y", "z"], choose.choice((0, 0, 1, 2))))))
        missing = {need: f"no {need}" for need in choose.sample(["w", "x", "y", "z"], choose.randrange(3))}
        budget = choose.uniform(0, 700)
        takes = {stage.name: choose.uniform(0, 2) * stage.most for stage in table}

        started, skipped = fates(tuple(table), budget, missing, lambda stage: takes[stage.name])
        assert sorted(name for name, *_ in [*started, *skipped]) == sorted(stage.name for stage in table), "each has one fate"
        assert [name for name, *_ in started] == sorted((name for name, *_ in started), key=int), started
        assert all(end <= budget + 1e-9 for _, _, end in started), (budget, started)
        assert all(reason for _, reason in skipped), skipped
        shares = {stage.name: stage.shares for stage in table}
        ordered = sorted(started, key=lambda each: each[1])
        for (one, _, end), (other, begin, _) in zip(ordered, ordered[1:]):
            assert begin >= end or (shares[one] and shares[other]), (one, other, started)
            alone_and_beside |= 1 if begin >= end else 2
        for name, _, _ in started:
            assert not next(stage for stage in table if stage.name == name).needs & missing.keys()
    assert alone_and_beside == 3


def the_table_has_the_order_and_limits_that_its_budget_allows(_):
    for baseline, kernels in (("", stages.ALL_KERNELS), ("/old", "lockstep.*(Apply)")):
        table = stages.table(stages.Setting(bundle="/new", python="python3", baseline=baseline, kernels=kernels))
        names = [stage.name for stage in table]
        order = ["machine", "smoke", "step", "ops", "loader", "device", "nccl", "pytorch", "precisions", "profile",
                 *(["memcheck"] if baseline else []), "choices"]
        assert [name for name in names if name in order] == order and len(set(names)) == len(names), names
        assert baseline or names.index("memcheck") > names.index("choices"), names
        assert all(0 < stage.least <= stage.most <= 600 and stage.parts for stage in table), table
        assert not [stage.name for stage in table if stage.timed and stage.shares], "a timed stage runs alone"
        # Each that takes the least fits into 900 s up to the profile.
        started, _ = fates(table, 900, {}, lambda stage: stage.least * 1.2)
        assert "profile" in [name for name, *_ in started], started
    turns = {stage.name: stage.parts for stage in table}["step"]
    assert [part.name for part in turns] == ["new 1", "baseline 1", "new 2", "baseline 2"], turns
    assert [part.command[0] for part in turns[:2]] == ["/new/run/lockstep", "/old/run/lockstep"]


# Predicted seconds on an H200 with 16 cores.
PREDICTED = {"machine": 3, "smoke": 10, "step": 48, "ops": 18, "loader": 80, "kernels": 50, "device": 60, "conformance": 90, "pixels": 40,
             "compile": 90, "nccl": 50, "pytorch": 70, "precisions": 45, "batches": 22, "models": 22, "profile": 60, "memcheck": 90,
             "choices": 36, "decode": 130, "training": 200, "system": 250, "programs": 180, "races": 300, "others": 300}


def the_most_informative_stages_fit_into_540_and_900_seconds(_):
    table = stages.table(stages.Setting(bundle="/new", python="python3", baseline="/old", kernels="lockstep.*(Apply)"))
    assert {stage.name for stage in table} == set(PREDICTED)
    assert all(stage.least <= PREDICTED[stage.name] <= stage.most for stage in table), "each has time to end"
    for budget, last in ((540, "profile"), (900, "choices")):
        started, skipped = fates(table, budget, {}, lambda stage: PREDICTED[stage.name])
        print(f"-- {budget} s: " + ", ".join(f"{name} {begin:.0f}-{end:.0f}" for name, begin, end in started) + "; left out: " +
              ", ".join(name for name, _ in skipped))
        assert last in [name for name, *_ in started], started


def parts_in_turn_leave_time_for_one_another(_):
    precisions = {stage.name: stage for stage in stages.table(stages.Setting(bundle="/new", python="python3"))}["precisions"]
    assert [part.name for part in precisions.parts] == ["fp16", "tf32", "fp32"]
    assert sum(part.most for part in precisions.parts) <= precisions.most and all(part.most for part in precisions.parts)


def nccl_says_what_it_does_in_every_part_that_uses_it(_):
    parts = {stage.name: stage for stage in stages.table(stages.Setting(bundle="/new", python="python3"))}["nccl"].parts
    files = [dict(part.environment)["NCCL_DEBUG_FILE"] for part in parts if dict(part.environment)["NCCL_DEBUG"] == "INFO"]
    assert len(set(files)) == len(parts) == 5, files


def the_end_of_stuck_processes_fits_into_the_time_kept_for_it(_):
    """A contained command's, then orphans', then the sampler's, which has a second."""
    assert attempt.GRACE + contain.STUCK + contain.STUCK + 1 + contain.STUCK < CLEAN_UP


def the_clock_begins_with_the_process(_):
    code = f"import sys, time; sys.path.insert(0, {str(MACHINE)!r}); time.sleep(0.5); import attempt; print(attempt.Clock(10).now())"
    assert float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout) >= 4.9  # a tick is 10 ms


def started_by(mark):
    """Processes with the environment variable."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if f"MARK={mark}".encode() in file.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            continue
    return found


def contained(folder, command, grace=0.2):
    return subprocess.Popen([sys.executable, "-I", "-S", MACHINE / "contain.py", str(grace), str(os.getpid()), "bash", "-c", command],
                            env={**os.environ, "MARK": str(folder)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder)


# Starts a process in another session that ignores SIGTERM; all end when the test's folder is removed.
STUBBORN = """(setsid bash -c 'trap "" TERM; touch ready; while [ -e ready ]; do sleep 1; done' >/dev/null 2>&1 &)
while [ ! -e ready ]; do sleep 0.01; done
"""


def no_process_outlives_its_command(folder):
    for end, status in (("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 128 + 9)):
        process = contained(folder, STUBBORN + end)
        output = process.communicate(timeout=60)[0]
        assert process.returncode == status, (end, process.returncode)
        assert "outlived the command" in output and not started_by(folder), (output, started_by(folder))
    process = contained(folder, "echo done")
    assert process.communicate(timeout=60)[0] == "done\n" and process.returncode == 0


def the_status_is_found_of_a_command_that_ends_at_once(_):
    """Here before Popen returns."""
    code = f"""import os, subprocess, sys
sys.path.insert(0, {str(MACHINE)!r})
import contain
class AtOnce(subprocess.Popen):
    def __init__(self, *words, **options):
        super().__init__(*words, **options)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
subprocess.Popen = AtOnce
sys.argv = ["contain.py", "1", str(os.getppid()), "bash", "-c", "exit 7"]
sys.exit(contain.main())"""
    assert subprocess.run([sys.executable, "-c", code], timeout=20).returncode == 7


def a_told_end_reaches_processes_that_ignore_it_or_changed_their_session(folder):
    process = contained(folder, STUBBORN + "trap '' TERM; while [ -e ready ]; do sleep 1; done")
    while not (folder / "ready").exists():
        time.sleep(0.01)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM and not started_by(folder), started_by(folder)


def every_process_is_asked_to_end_and_has_time_for_it(folder):
    """Also the child of one that goes on."""
    (folder / "child").write_text("trap 'echo saved >saved; exit 0' TERM; touch ready; while [ -e ready ]; do sleep 0.05; done")
    process = contained(folder, "trap : TERM; bash child", grace=1000)
    while not (folder / "ready").exists():
        time.sleep(0.01)
    process.terminate()
    process.communicate(timeout=60)
    assert (folder / "saved").read_text() == "saved\n"


def the_end_of_the_parent_ends_all(folder):
    (folder / "command").write_text(STUBBORN + "while [ -e ready ]; do sleep 1; done")
    parent = subprocess.Popen(["bash", "-c", f"'{sys.executable}' -I -S '{MACHINE}/contain.py' 0.2 $$ bash command; true"],
                              env={**os.environ, "MARK": str(folder)}, cwd=folder)
    while not (folder / "ready").exists():
        time.sleep(0.01)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 60
    while started_by(folder):
        assert time.monotonic() < deadline, started_by(folder)
        time.sleep(0.05)


def a_command_leaves_no_core_file(folder):
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))
    process = contained(folder, "ulimit -c")
    assert process.communicate(timeout=60)[0] == "0\n"


def a_kernel_that_does_not_hand_over_orphans_is_told(_):
    real, contain.ctypes.CDLL = contain.ctypes.CDLL, lambda *_, **__: types.SimpleNamespace(prctl=lambda *_: -1)
    try:
        told = contain.adopt_orphans(signal.SIGTERM)
    finally:
        contain.ctypes.CDLL = real
    assert told.startswith("processes may outlive their command, or the run (prctl 36: "), told


def a_command_that_cannot_start_fails_and_the_next_one_runs(folder):
    stage = Stage("a", 1, 50, (planner.Part("first", ("true",)), planner.Part("second", ("true",))))
    each = attempt.Attempt(stage, 50, attempt.Clock(), folder / "no" / "a", [dict(os.environ)])
    each.poll()
    assert each.records[0]["state"] == "failed" and "it did not start" in each.records[0]["reason"], each.records
    (folder / "no").mkdir()
    while not each.poll():
        time.sleep(0.01)
    assert each.state() == "failed" and each.records[1]["state"] == "passed", each.records


def an_archive_is_complete_whenever_its_writer_is_killed(folder):
    """The writer is killed while it writes: at any moment a reader finds the former archive or the new one."""
    writer = ("import sys; sys.path.insert(0, sys.argv[1])\nimport results\narchive = results.Archive(sys.argv[2])\n"
              "for i in range(10 ** 6):\n    archive.put(f'{i % 7}.txt', 'x' * 300000)\n    archive.put('count', str(i))\n    archive.save()\n")
    choose = random.Random(3)
    path = folder / "there" / "results.tar"
    for _ in range(12):
        process = subprocess.Popen([sys.executable, "-c", writer, MACHINE, path])
        while not path.exists():
            time.sleep(0.001)
        time.sleep(choose.uniform(0, 0.1))
        process.kill()
        process.wait()
        with tarfile.open(path) as tar:
            names = tar.getnames()
            assert int(tar.extractfile("results/count").read()) >= 0 and len(tar.extractfile("results/0.txt").read()) == 300000, names
        path.unlink()


def of_a_large_file_both_ends_are_kept(folder):
    (folder / "log").write_bytes(b"begin" + b"x" * 3 * results.LARGEST + b"end")
    archive = results.Archive(folder / "results.tar")
    archive.take("log", folder / "log")
    assert archive.taken["log"].startswith(b"begin") and archive.taken["log"].endswith(b"end")
    assert len(archive.taken["log"]) < results.LARGEST + 100


def an_archive_is_small_enough_to_be_brought_back(folder):
    """Its largest files are cut, and the run's own come first."""
    archive = results.Archive(folder / "results.tar")
    sizes = {"a": 7 << 20, "b": 6 << 20, "c": 5 << 20, "d": 3 << 20, **{f"e{i}": 1000 for i in range(300)}}
    for name, size in sizes.items():
        (folder / name).write_bytes(b"<" + b"x" * (size - 2) + b">")
        archive.take(name, folder / name)
    archive.put("summary.json", "{}")
    archive.save()
    assert archive.path.stat().st_size <= 15 << 20 and sorted(archive.cut()) == ["a", "b", "c"], archive.cut()
    with tarfile.open(archive.path) as tar:
        assert tar.getnames()[0] == "results/summary.json" and len(tar.getnames()) == len(sizes) + 1
        found = {name: tar.extractfile(f"results/{name}").read() for name in sizes}
    assert all(content.startswith(b"<") and content.endswith(b">") for content in found.values())
    kept = {name: len(content) for name, content in found.items()}
    assert {name for name in kept if kept[name] != sizes[name]} == {"a", "b", "c"} and kept["a"] > 3 << 20, kept
    assert f"\n... {sizes['a'] - 2 * (archive.cut()['a'] // 2)} bytes are left out ...\n".encode() in found["a"]


def asked_of(folder, script):
    """What gpu.others() says twice, where nvidia-smi is the script."""
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\necho >>{folder}/asked\n{script}")
    (folder / "nvidia-smi").chmod(0o755)
    code = (f"import sys; sys.path.insert(0, {str(MACHINE)!r}); import gpu, json; gpu.PATIENCE = 0.3; "
            "print(json.dumps([gpu.others(), gpu.others(), gpu.notes]))")
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=100,
                            env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}).stdout
    return json.loads(output), len((folder / "asked").read_text())


def what_does_not_answer_is_asked_once(folder):
    (*said, notes), asked = asked_of(folder, "exec sleep 30\n")
    assert said == [None, None] and asked == 1 and "did not answer within 0.3 s" in notes["silent"], (said, notes, asked)


def the_server_of_mps_is_no_process_that_uses_the_gpu(folder):
    lines = 'case "$*" in *apps*) echo "7, /usr/bin/nvidia-cuda-mps-server"; [ -z "$MORE" ] || echo "8, other" ;; *) echo 0 ;; esac\n'
    (*said, notes), _ = asked_of(folder, lines)
    assert said == ["", ""] and "nvidia-cuda-mps-server is on the GPU" in notes["shared"], (said, notes)
    (*said, _), _ = asked_of(folder, "MORE=1\n" + lines)
    assert said == ["processes on the GPU: 8 other"] * 2, said


def the_machine_is_described_whatever_it_lacks(_):
    text = subprocess.run([sys.executable, MACHINE / "machine.py"], check=True, capture_output=True, text=True, timeout=100,
                          env={"PATH": "/nowhere", "NCCL_ALGO": "Ring", "SECRET": "told to nobody"}).stdout
    assert "\nNCCL_ALGO=Ring\n" in text and "told to nobody" not in text and "== GPU\n" in text and "libnccl.so.2: " in text, text


def clocks_and_throttling_are_those_of_the_busy_gpu_within_the_stage(_):
    lines = ["2026/11/29 10:00:00.000, 345, 3201, 90.1, 35, 0, 0x0000000000000001",
             "2026/11/29 10:00:01.000, 1980, 3201, 650.0, 61, 99, 0x0000000000000000",
             "2026/11/29 10:00:02.000, 1900, 3201, 700.0, 63, 99, 0x0000000000000004",
             "2026/11/29 10:00:03.000, 1500, 3201, 500.0, 63, 99, 0x0000000000000040", "[N/A], broken", "2026/11/29 10:00:04.0"]
    found = gpu.samples("\n".join(lines))
    begin = found[0][0]
    assert len(found) == 4
    assert gpu.summary(found, begin, begin + 2.5) == {"samples": 2, "sm_mhz": {"min": 1900, "median": 1940},
                                                      "watts": {"median": 675, "max": 700}, "throttled": {"power cap": 0.5}}
    assert gpu.summary(found, begin - 5, begin - 1) is None
    assert json.dumps(gpu.summary(found, begin + 2.5, begin + 9)["throttled"]) == '{"thermal (hardware)": 1.0}'


def a_rank_gets_a_host_name_of_its_own_and_stays_the_same_user(folder):
    folder.chmod(0o755)
    shutil.copy(MACHINE / "own_host.py", folder)
    for user in (os.getuid(), *((65534,) if os.getuid() == 0 else ())):
        done = subprocess.run(["/usr/bin/python3", folder / "own_host.py", "bash", "-c", "hostname; id -u"], text=True, capture_output=True,
                              user=user, group=user, extra_groups=[] if user else None, cwd="/",
                              env={"PATH": "/usr/bin:/bin", "OMPI_COMM_WORLD_RANK": "3"})
        if done.returncode == 77:
            raise Skipped(f"{done.stderr.strip()} (namespaces)")
        assert done.stdout.split() == ["rank-3", str(user)], done


def a_skip_has_the_reason_that_its_test_prints(_):
    assert attempt.skip_reason("skipped: no usable GPU\nRunning 5 test cases...\n-----\nPrimary job terminated\n") == "skipped: no usable GPU"
    assert attempt.skip_reason("a rank cannot get a host name of its own (refused)\n") == "a rank cannot get a host name of its own (refused)"


def equal_code_has_equal_digests_wherever_it_is_in_its_file(_):
    sys.path.insert(0, str(SOURCE / "scripts"))
    digest = runpy.run_path(str(SOURCE / "scripts/kernel-digests"))["digest"]
    code = ".L_x_1:\n /*0000*/ @!P0 BRA `(.L_x_1) ;\n /*0010*/ FADD R1, R2, R3 ;\n"

    assert digest(code) == digest(code.replace(".L_x_1", ".L_x_29").replace(" /*", "     /*"))
    shared = code + " /*0020*/ CALL.REL.NOINC `($__internal_53_$__cuda_sm20_div_rn_f64_full) ;\n"
    assert digest(shared) == digest(shared.replace("internal_53", "internal_7"))
    for other in (code.replace("FADD", "FMUL"), code.replace("R3", "R4"), code.replace("@!P0", "@P0"), code.replace("(.L_x_1)", "(.L_x_2)")):
        assert digest(code) != digest(other), other


if __name__ == "__main__":
    main([stages_start_in_their_order_while_time_is_left, a_stage_whose_needs_are_not_met_is_skipped_with_all_reasons,
          neighbours_that_share_the_machine_run_side_by_side_and_others_alone, random_tables_keep_order_and_budget_and_give_each_stage_one_fate,
          the_table_has_the_order_and_limits_that_its_budget_allows, the_most_informative_stages_fit_into_540_and_900_seconds,
          parts_in_turn_leave_time_for_one_another, nccl_says_what_it_does_in_every_part_that_uses_it,
          the_end_of_stuck_processes_fits_into_the_time_kept_for_it, the_clock_begins_with_the_process, a_command_leaves_no_core_file,
          a_kernel_that_does_not_hand_over_orphans_is_told, a_command_that_cannot_start_fails_and_the_next_one_runs,
          no_process_outlives_its_command, the_status_is_found_of_a_command_that_ends_at_once,
          a_told_end_reaches_processes_that_ignore_it_or_changed_their_session, every_process_is_asked_to_end_and_has_time_for_it,
          the_end_of_the_parent_ends_all, an_archive_is_complete_whenever_its_writer_is_killed, of_a_large_file_both_ends_are_kept,
          an_archive_is_small_enough_to_be_brought_back, what_does_not_answer_is_asked_once, the_server_of_mps_is_no_process_that_uses_the_gpu,
          the_machine_is_described_whatever_it_lacks, clocks_and_throttling_are_those_of_the_busy_gpu_within_the_stage,
          a_rank_gets_a_host_name_of_its_own_and_stays_the_same_user, equal_code_has_equal_digests_wherever_it_is_in_its_file,
          a_skip_has_the_reason_that_its_test_prints])
