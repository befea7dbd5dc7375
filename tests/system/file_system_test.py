#!/usr/bin/env python3
"""Tests file systems without symbolic links, as exFAT, Azure Files and some FUSE mounts."""

import errno

from harness import *  # noqa: F403

FAULTS = os.environ["LOCKSTEP_TEST_FAULTS"]
FROM_THE_FIRST = 1


def without_links(error=errno.EPERM, first=FROM_THE_FIRST):
    return {"LD_PRELOAD": FAULTS, "LOCKSTEP_TEST_FAULT": f"0:links:{first}:{error}"}


def data_in(folder):
    write_shards(folder / "data", samples=64)
    return write_shards(folder / "data", samples=32, shards=1, split="val", seed=1)


def names_in(run_dir):
    return sorted(path.name for path in (run_dir / "checkpoints").iterdir())


def behind(run_dir, name):
    path = run_dir / "checkpoints" / name
    return os.readlink(path) if path.is_symlink() else path.read_text()


SAVES = ["--epochs", 6, "--save-every", 4, "--keep", 1, "--straggler-factor", 0]


def a_run_without_links_keeps_the_same_files(folder):
    data = data_in(folder)
    for ranks in (1, 2):
        run(train_args(data, folder / f"links-{ranks}", *SAVES), ranks)
    cases = [(error, ranks) for ranks in (1, 2)
             for error in (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EACCES)]
    for error, ranks in few(cases, 0, 1, 7):
        made = folder / f"{error}-{ranks}"
        output = run(train_args(data, made, *SAVES), ranks, without_links(error))
        assert output.count("warning: ") == 1 and output.count("has no symbolic links") == 1, output
        assert os.strerror(error) in output and "no checkpoint of step" not in output, output
        assert names_in(made) == names_in(folder / f"links-{ranks}"), names_in(made)
        for name in ("latest", "best"):
            assert not (made / "checkpoints" / name).is_symlink()
            assert behind(made, name) == behind(folder / f"links-{ranks}", name) + "\n", behind(made, name)


def every_command_reads_latest_and_best_without_links(folder):
    data = data_in(folder)
    made = folder / "run"
    run(train_args(data, made, *SAVES), env=without_links())
    latest_name, best_name = (behind(made, name).strip() for name in ("latest", "best"))
    for name, file in (("latest", latest_name), ("best", best_name)):
        path, real = made / "checkpoints" / name, made / "checkpoints" / file
        evaluate = lambda checkpoint, predictions: json.loads(run(  # noqa: E731
            ["eval", "--checkpoint", checkpoint, "--data", data, "--json", "--predictions", predictions]).splitlines()[0])
        one, other = evaluate(path, folder / f"{name}.h5"), evaluate(real, folder / f"real-{name}.h5")
        assert one["loss"] == other["loss"] and one["samples"] == 32, (one, other)
        with h5py.File(folder / f"{name}.h5") as predictions:
            assert bytes(predictions.attrs["checkpoint"]).decode() == file, predictions.attrs["checkpoint"]
        for ranks in (1, 2):
            run(["export", path, "--format", "safetensors", "--output", folder / f"{name}-{ranks}"], ranks)
            assert "is the checkpoint itself" in run(
                ["export", path, "--format", "onnx", "--output", real, "--overwrite"], ranks, expect=USAGE)
        assert f"{file}: checkpoint" in run(["inspect", "--verify", path])
        run(train_args(data, folder / f"from-{name}", "--epochs", 1, "--init-from", path))
        run(train_args(data, folder / f"resumed-{name}", "--epochs", 7, "--resume", path))
    assert (folder / "latest-1").read_bytes() == (folder / "latest-2").read_bytes()
    shown = json.loads(run(["inspect", made, "--json"]))
    assert (shown["latest"], shown["best"]) == (latest_name, best_name), shown
    assert json.loads(run(["watch", made, "--json"]))["checkpoint"]["step"] == 96
    for run_dir, name in ((made, latest_name), (folder, "none")):
        assert f"at checkpoint {name}: " in run(["restart", run_dir, "--status", 70])


def a_run_moves_between_file_systems(folder):
    data = data_in(folder)
    whole, made = folder / "whole", folder / "run"
    run(train_args(data, whole, *SAVES))
    for steps, env in ((20, without_links()), (40, None), (60, without_links()), (96, None)):
        run(train_args(data, made, *SAVES, "--max-steps", steps), env=env)
        assert behind(made, "latest").strip() == f"step-{steps:08}.h5"
    assert_same_run(whole, made)
    assert behind(made, "best").strip() == behind(whole, "best")


def a_stop_without_links_can_continue(folder):
    data = data_in(folder)
    for ranks in (1, 2):
        made = folder / f"run-{ranks}"
        process = start(train_args(data, made, "--epochs", 2000, "--save-every", 5), ranks, env=without_links())
        wait_for_step(made, 12, process)
        process.send_signal(signal.SIGUSR1)
        status, output = finish(process)
        assert status == STOPPED, f"{status}\n{output}"
        assert behind(made, "latest") == f"step-{state(made / 'checkpoints' / behind(made, 'latest').strip())['step']:08}.h5\n"


def links_and_names_that_cannot_be_made_fail_no_save(folder):
    data = data_in(folder)
    made = folder / "run"
    for name in ("latest", "best"):
        (made / "checkpoints" / name / "kept").mkdir(parents=True)
    output = run(train_args(data, made, *SAVES))
    assert output.count("warning: ") == 1 and "is left out, but its checkpoint is written" in output, output
    steps = [int(name[5:-3]) for name in names_in(made) if name.startswith("step-")]
    best = max(events(made, "eval"), key=lambda event: event["top1"])["step"]
    assert steps == sorted({best, 96}), (steps, best)
    assert (made / "checkpoints" / "latest" / "kept").is_dir()


def doctor_says_that_there_are_no_links(folder):
    output = run(["doctor", "--run-dir", folder, "--model", "mini-resnet", "--width", 8], env=without_links())
    assert "no symbolic links (Operation not permitted)" in output and "ok    run-dir" in output, output
    assert "symbolic links" not in run(["doctor", "--run-dir", folder, "--model", "mini-resnet", "--width", 8])


if __name__ == "__main__":
    main([a_run_without_links_keeps_the_same_files, every_command_reads_latest_and_best_without_links,
          a_run_moves_between_file_systems, a_stop_without_links_can_continue,
          links_and_names_that_cannot_be_made_fail_no_save, doctor_says_that_there_are_no_links])
