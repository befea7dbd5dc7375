#!/usr/bin/env python3
"""Tests the whole run of a GPU bundle: over the host in a GPU's place; and over commands that only wait, with a clock that runs fast, when stages end
late, fail or never end, when another process uses the GPU, and when the run is killed at any stage."""

import concurrent.futures
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time

from installed import BUILD, SOURCE, main, run
from runner import Skipped

STAND_INS = SOURCE / "tests/install/bundle_stand_ins"
MACHINE = SOURCE / "scripts/gpu-machine"
TESTS = ("cuda_device_test", "nvjpeg_test", "kernels_on_device_test", "engine_conformance_test", "engine_program_test", "pixel_input_test",
         "nccl_library_test")


def place_stand_in(bundle, name):
    for path, target in ((bundle / "bin" / name, STAND_INS / "programs/stage"), (bundle / "run" / name, "any")):
        path.unlink(missing_ok=True)
        path.symlink_to(target)


def stand_in_bundle(folder):
    """A bundle whose commands are all the program `stage`."""
    bundle = folder / "bundle"
    for name in ("bin", "lib", "openmpi", "run", "tests/system", "fashion-mnist"):
        (bundle / name).mkdir(parents=True)
    for path in MACHINE.iterdir():
        if path.is_file():
            shutil.copy(path, bundle)
    shutil.move(bundle / "any", bundle / "run/any")
    (bundle / "run/any-of").symlink_to("any")
    for name in ("lockstep", "mpirun", *TESTS):
        place_stand_in(bundle, name)
    for name in ("machine.py", "two_ranks.py", "compare_pytorch_gpu.py", "tests/system/device_test.py", "tests/system/gpu_training_test.py"):
        (bundle / name).write_text(f"import os\nos.execv('{STAND_INS}/programs/stage', ['stage'])\n")
    return bundle


def environment(folder, speed, **more):
    return {**os.environ, "PATH": f"{STAND_INS}/programs:{os.environ['PATH']}", "PYTHONPATH": f"{STAND_INS}/python", "LOCKSTEP_CUDA_LIBRARIES": "",
            "LOCKSTEP_BUNDLE_REHEARSAL": str(speed), "STAND_IN_FOLDER": str(folder), "STAND_IN_GPU_USERS": str(folder / "users"), **more}


def start(folder, *options, bundle=None, speed=20, **more):
    return subprocess.Popen([sys.executable, bundle or folder / "bundle/all", folder / "out", *options], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(folder, speed, **more), cwd=folder)


def finish(process, expect=0, seconds=300):
    output = process.communicate(timeout=seconds)[0]
    assert process.returncode == expect, f"status {process.returncode}, expected {expect}:\n{output}"
    return output


def contents(folder):
    """The archive's files; it must be whole."""
    with open(folder / "out/results.tar", "rb") as file:
        tar = tarfile.open(fileobj=io.BytesIO(file.read()))
    return {entry.name.removeprefix("results/"): tar.extractfile(entry).read().decode() for entry in tar.getmembers()}


def stages_of(files):
    return {entry["name"]: entry for entry in json.loads(files["summary.json"])["stages"]}


def left_by(folder):
    """Processes that the run has started, and that still are."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            environ = pathlib.Path("/proc", pid, "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"STAND_IN_FOLDER={folder}".encode() in environ:
            found.append(pid)
    return found


def await_none_left(folder):
    deadline = time.monotonic() + 60
    while left := left_by(folder):
        assert time.monotonic() < deadline, f"processes outlive the run: {left}"
        time.sleep(0.02)


def names_of_stages(folder):
    return [line.split()[0] for line in run([sys.executable, folder / "bundle/all", "--list"], env=environment(folder, 1)).splitlines()]


def the_host_in_a_gpus_place_passes_every_stage(folder):
    allowed = subprocess.run([sys.executable, MACHINE / "own_host.py", "true"], capture_output=True, text=True)
    if allowed.returncode == 77:
        raise Skipped(f"{allowed.stderr.strip()} (namespaces)")
    run([SOURCE / "scripts/gpu-bundle", "--rehearsal", BUILD, folder / "bundle"])
    run([SOURCE / "scripts/gpu-bundle", "--step-only", "--rehearsal", BUILD, folder / "old"])
    (folder / "old/revision").write_text("an older revision\n")
    # The tests themselves have others that run them.
    for name in TESTS:
        place_stand_in(folder / "bundle", name)
    for name in ("device_test", "gpu_training_test"):
        (folder / f"bundle/tests/system/{name}.py").write_text("")
    (folder / "bundle/fashion-mnist").mkdir()
    for bundle, digest in (("bundle", "1"), ("old", "2")):
        (folder / bundle / "kernels.json").write_text(json.dumps({"Apply<float> sm_90a": digest, "Decide sm_90a": digest, "Combine<4> sm_90a": "0"}))

    output = finish(start(folder, "--budget", "900", "--baseline", folder / "old", speed=2, HOST_MODULE_SHARED="1"), seconds=580)
    files = contents(folder)
    print(files["summary.txt"])
    found, facts = stages_of(files), json.loads(files["summary.json"])
    assert (facts["baseline"], facts["changed_kernels"], facts["notes"]) == ("an older revision", ["Apply", "Decide"], []), facts
    assert "== libraries\n" in files["machine/machine.log"] and f"LD_LIBRARY_PATH={folder}/bundle/lib" in files["machine/machine.log"]
    assert set(found) == set(names_of_stages(folder)), list(found)
    assert {entry["state"] for entry in found.values()} == {"passed"}, output
    parts = {f"{name}/{part['name']}": part for name, entry in found.items() for part in entry["parts"]}
    assert {part["state"] for part in parts.values()} == {"passed"}, parts
    # Two ranks on one GPU: equal bits, and the killed rank is named.
    assert parts["nccl/nccl"]["result"]["equal_bits"] and parts["nccl/hybrid"]["result"]["equal_bits"] and parts["nccl/nccl"]["result"]["steps"] == 20
    assert all(f"nccl/runs/{name}/{kept}" in files for name in ("mpi", "nccl", "hybrid", "killed")
               for kept in ("metrics.jsonl", "log/rank-00001.log")), list(files)
    assert "rank 1 (rank-1" in parts["nccl/killed"]["result"]["named"][0], parts["nccl/killed"]
    # The new bundle and the baseline in turn.
    assert [part["name"] for part in found["step"]["parts"]] == ["new 1", "baseline 1", "new 2", "baseline 2"]
    assert str(folder / "old") in parts["step/baseline 1"]["command"][0] and found["step"]["ratio_to_baseline"]["min"] > 0
    assert "kns=lockstep.*(Apply|Decide)" in files["memcheck/memcheck-kernels_on_device_test.log"], "only the kernels that differ"
    rows = parts["pytorch/pytorch"]["result"]["rows"]
    assert rows[0]["ratio_to_best"] and rows[0]["images_per_second"]["graphs"], rows
    assert "Kernel Name" in files["profile/kernels.csv"]
    assert found["loader"]["clocks"]["throttled"] == {"power cap": 1.0} and found["loader"]["clocks"]["sm_mhz"]["median"] == 1965
    assert len(files["clocks.csv"].splitlines()) > 20 and f"{found['step']['ratio_to_baseline']['median']:.3f}" in files["summary.txt"]
    await_none_left(folder)
    other_bits_than_over_mpi_are_an_error(folder)


def other_bits_than_over_mpi_are_an_error(folder):
    options = ["--model", "mlp", "--image-size", "8", "--width", "8", "--classes", "10", "--synthetic-samples", "640", "--batch-size", "4"]
    words = ["bash", "-c", f'. "$0/bundle/environment" && exec "{sys.executable}" "$0/bundle/two_ranks.py" "$@"', folder]
    for name, more, status in (("mpi", [], 0), ("nccl", ["--lr", "0.0501"], 1)):
        output = run([*words, name, folder, *options, *more], expect=status, env=environment(folder, 1, HOST_MODULE_SHARED="1"))
    assert re.search(r"nccl: other bits than over MPI: first other loss: step [2-9], \d\S+ and \d\S+; SHA-256 of the weights", output), output


def a_budget_decides_what_runs_and_what_is_left_out(folder):
    """Each command takes 0.6 of its stage's least time; 900 seconds pass in 30."""
    stand_in_bundle(folder)
    listed = run([sys.executable, folder / "bundle/all", "--list"], env=environment(folder, 1)).splitlines()
    least = {line.split()[0]: float(line.split()[1]) for line in listed}
    (folder / "seconds").write_text("".join(f"{name} {seconds * 0.6 / 30}\n" for name, seconds in least.items()))
    for budget in (900, 300):
        process = start(folder, "--budget", str(budget), speed=30, STAND_IN_SECONDS=str(folder / "seconds"))
        finish(process)  # a stage that the budget cuts off has not failed
        files = contents(folder)
        print(f"-- {budget} s\n" + files["summary.txt"])
        found = stages_of(files)
        assert list(found) == list(least)
        ran = [name for name in found if "began" in found[name]]
        assert ran[:3] == ["machine", "smoke", "step"] and (budget == 900 or "training" not in ran), ran
        of_figures = [line.split()[0] for line in files["summary.txt"].splitlines() if "images/s" in line]
        assert "step" in of_figures and not {"kernels", "compile", "nccl"} & set(of_figures), "a figure measured beside others is none"
        begins = [found[name]["began"] for name in ran]
        assert begins == sorted(begins), ran
        for name in set(found) - set(ran):
            assert re.fullmatch(r"it takes \d+ s at least, and \d+ s were left", found[name]["reason"]), found[name]
        beside = [found[name] for name in ("kernels", "device", "conformance", "pixels", "compile") if name in ran]
        assert len(beside) < 2 or max(entry["began"] for entry in beside) < min(entry["ended"] for entry in beside), "they run side by side"
        alone = sorted((entry["began"], entry["ended"]) for name, entry in found.items() if name in ran and entry not in beside)
        assert all(end <= begin for (_, end), (begin, _) in zip(alone, alone[1:])), "the others run alone"


def a_stage_over_its_limit_and_one_that_fails_let_the_others_run(folder):
    stand_in_bundle(folder)
    output = finish(start(folder, "--stages", "smoke,ops,kernels,device,models,choices", STAND_IN_HANGS="models", STAND_IN_FAILS="device"), expect=1)
    found = stages_of(contents(folder))
    assert {name: entry["state"] for name, entry in found.items()} == {
        "smoke": "passed", "ops": "passed", "kernels": "passed", "device": "failed", "models": "failed", "choices": "passed"}, output
    hanging, next_part = found["models"]["parts"]
    assert re.fullmatch(r"not done within \d+ s", hanging["reason"]) and next_part["state"] == "not run", found["models"]
    assert "status 3: a wrong result" in found["device"]["reason"] and (folder / "hangs").exists()
    await_none_left(folder)


def a_stage_that_the_budget_cuts_off_has_not_failed(folder):
    stand_in_bundle(folder)
    finish(start(folder, "--stages", "models", "--budget", "75", STAND_IN_HANGS="models"))
    found = stages_of(contents(folder))["models"]
    assert found["state"] == "cut off" and found["limit"] < 60 and found["parts"][1]["state"] == "not run", found
    await_none_left(folder)


def without_a_first_step_only_the_tests_run(folder):
    stand_in_bundle(folder)
    finish(start(folder, "--stages", "smoke,step,kernels,nccl", speed=50, STAND_IN_FAILS="smoke"), expect=1)
    found = stages_of(contents(folder))
    assert {name: entry["state"] for name, entry in found.items()} == {"smoke": "failed", "step": "skipped", "kernels": "passed", "nccl": "skipped"}
    assert found["step"]["reason"] == "smoke has not passed"


def nothing_is_timed_beside_another_process_on_the_gpu(folder):
    stand_in_bundle(folder)
    (folder / "users").write_text("4242, python3\n")
    finish(start(folder, "--stages", "smoke,step,kernels", speed=40))
    found = stages_of(contents(folder))
    assert {name: entry["state"] for name, entry in found.items()} == {"smoke": "passed", "step": "skipped", "kernels": "passed"}
    assert found["step"]["reason"] == "new 1: not timed: processes on the GPU: 4242 python3", found["step"]

    # Without a name: a process of another container.
    (folder / "users").unlink()
    finish(start(folder, "--stages", "step", speed=40, STAND_IN_GPU_LOAD="97"))
    found = stages_of(contents(folder))
    assert "the GPU is 97 % busy with processes that nvidia-smi does not list" in found["step"]["reason"], found

    # One that comes meanwhile: the figure is marked, and does not count.
    (folder / "seconds").write_text("step 1\n")
    process = start(folder, "--stages", "step", speed=20, STAND_IN_SECONDS=str(folder / "seconds"))
    while not (folder / "began-step").exists():
        time.sleep(0.01)
    (folder / "users").write_text("4243, other\n")
    finish(process)
    one, two = stages_of(contents(folder))["step"]["parts"]
    assert one["state"] == "passed" and one["disturbed"] == "processes on the GPU: 4243 other" and two["state"] == "skipped", (one, two)


def a_run_that_is_killed_at_any_stage_leaves_a_whole_archive_and_no_process(folder):
    stand_in_bundle(folder)
    names = names_of_stages(folder)

    def killed(case):
        name, sent = case
        place = folder / f"{name}-{sent.name}"
        place.mkdir()
        (place / "bundle").symlink_to(folder / "bundle")
        process = start(place, "--stages", f"smoke,{name}", speed=20, STAND_IN_HANGS=name, TMPDIR=str(place))
        deadline = time.monotonic() + 100
        while not (place / "hangs").exists():
            assert time.monotonic() < deadline and process.poll() is None, process.communicate()[0]
            time.sleep(0.01)
        process.send_signal(sent)
        finish(process, expect=-sent if sent == signal.SIGKILL else 128 + sent)
        found = stages_of(contents(place))
        assert found[name]["state"] == ("running" if sent == signal.SIGKILL else "stopped"), (name, sent, found)
        assert name in ("machine", "smoke") or found["smoke"]["state"] == "passed", (name, sent, found)
        assert sent == signal.SIGKILL or "SIGTERM stopped the run" in found[name]["reason"], found
        await_none_left(place)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(killed, [(name, sent) for name in names for sent in (signal.SIGTERM, signal.SIGKILL)]))


def unknown_stages_and_bundles_are_named(folder):
    stand_in_bundle(folder)
    output = finish(start(folder, "--stages", "smoke,opps"), expect=64)
    assert "there is no stage opps (the stages are machine, smoke, step" in output and not (folder / "out").exists(), output
    output = finish(start(folder, "--baseline", folder / "none"), expect=66)
    assert output == f"all: --baseline {folder}/none is no bundle (there is no environment in it)\n", output


if __name__ == "__main__":
    main([the_host_in_a_gpus_place_passes_every_stage, a_budget_decides_what_runs_and_what_is_left_out,
          a_stage_over_its_limit_and_one_that_fails_let_the_others_run, a_stage_that_the_budget_cuts_off_has_not_failed,
          without_a_first_step_only_the_tests_run,
          nothing_is_timed_beside_another_process_on_the_gpu, a_run_that_is_killed_at_any_stage_leaves_a_whole_archive_and_no_process,
          unknown_stages_and_bundles_are_named])
