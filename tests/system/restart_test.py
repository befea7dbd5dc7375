#!/usr/bin/env python3
"""Tests `lockstep restart`, by which job scripts decide whether the ranks of a run start again."""

import re

from harness import *  # noqa: F403

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
UNFIT = 1
LOCK = '{"job":"Slurm job 7","host":"node2"}'


def logged(run_dir, text="begun\n", rank=0):
    (run_dir / "log").mkdir(parents=True, exist_ok=True)
    (run_dir / "log" / f"rank-{rank:05}.log").write_text(text)
    return run_dir


def restart(run_dir, status, *options, expect=OK):
    return run(["restart", run_dir, "--status", status, "--job", 7, *options], expect=expect, env={"SLURM_JOB_ID": "7"}).strip()


def values(run_dir, status, *options, expect=OK):
    return dict(line.split("=", 1) for line in restart(run_dir, status, "--values", *options, expect=expect).splitlines())


def statuses_are_answered_as_documented(folder):
    """Compares all with the tables of docs/exit-status.md."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in (DOCS / "exit-status.md").read_text().splitlines() if re.match(r"\| \d", line)]
    documented = {}
    for first, *_, last in rows:
        for status in first.split(","):
            low, _, high = status.partition("-")
            documented.update({one: last.startswith("yes") for one in range(int(low), int(high or low) + 1)})
    assert {64, 75, 137, 205} <= documented.keys(), documented
    made = logged(folder / "run")
    for status in range(256):
        resumes = documented.get(status, False)
        answer = restart(made, status, expect=OK if resumes else UNFIT)
        assert answer.startswith(f"{'yes' if resumes else 'no'}: status {status}"), answer
    for status in (-1, 256):
        restart(made, status, expect=USAGE)


def success_needs_a_log(folder):
    made = logged(folder / "run", "2026-11-25 10:00:00.100 I finished at step 10\n")
    size = (made / "log" / "rank-00000.log").stat().st_size
    assert restart(made, 0, "--require-end", expect=UNFIT) == "no: status 0: the run is done"
    for options, status, unlogged in (([], "70", "1"), (["--require-end"], "70", "1"), (["--asked-to-stop"], "75", "")):
        told = values(made, 0, "--log-bytes", size, *options)
        assert (told["status"], told["unlogged"], told["allowed"]) == (status, unlogged, "1"), (options, told)
    logged(made, "2026-11-25 10:00:00.100 I finished at step 10\n2026-11-25 10:00:00.200 I stopped on request at step 15\n")
    assert values(made, 0, "--log-bytes", size, "--require-end")["status"] == "75"
    assert values(made, 0, "--log-bytes", size, expect=UNFIT)["status"] == "0"


def restarts_of_a_submission_are_counted(folder):
    made = logged(folder / "run")
    assert restart(made, 139, "--record") == "yes: status 139 at checkpoint none: restart 1 of at most 50"
    assert restart(made, 139, "--record", "--in-job", "--left-out", "n1", "--named", "n2,n3").endswith("restart 2 of at most 50")
    lines = (made / "restarts").read_text().splitlines()
    assert re.fullmatch(r"7 139 none \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d crash", lines[0]), lines
    assert lines[1].endswith(" crash in-job left-out=n1 named=n2,n3"), lines
    assert "again, after 2 restarts for that reason" in restart(made, 139, "--record", "--stalled-restarts", 5, expect=UNFIT)
    assert "still at checkpoint none after 2 restarts (stalled_restarts=1)" in restart(made, 70, expect=UNFIT)
    assert "no restart is allowed (max_restarts=0)" in restart(made, 70, "--max-restarts", 0, expect=UNFIT)
    assert "after 2 restarts (max_restarts=2)" in restart(made, 70, "--max-restarts", 2, expect=UNFIT)
    assert len((made / "restarts").read_text().splitlines()) == 2, "what is refused is not counted"
    assert "restart 1 of" in run(["restart", made, "--status", 139, "--job", 8])
    # Of a run that has not begun, whose directory is made.
    restart(folder / "new" / "run", 137, "--record", "--out-of-memory")
    assert (folder / "new" / "run" / "restarts").read_text().endswith(" crash unlogged\n")
    for options in (["--job", "a b"], ["--left-out", "a b"], ["--named", "a\nb"], ["--ranks", 2]):
        run(["restart", made, "--status", 70, "--record", *options], expect=USAGE)
    for words in ([], ["--status", 70, made], ["--values"]):
        run(["restart", made, *words], expect=USAGE)


def a_restart_within_the_job_frees_the_lock_of_its_ranks(folder):
    made = logged(folder / "run")
    for holder, options, freed in (("7", ["--record", "--in-job"], True), ("77", ["--record", "--in-job"], False), ("7", ["--record"], False),
                                   ("7", ["--in-job"], False)):
        (made / "lock").write_text(LOCK.replace("7", holder))
        restart(made, 70, "--stalled-restarts", 50, *options)
        assert ((made / "lock").read_text() == "") == freed, (holder, options)


def nothing_is_written_through_links_in_a_run_directory(folder):
    """Nor to what has another name outside it."""
    made, victim = logged(folder / "run"), folder / "victim"
    victim.write_text(LOCK)
    for link in (pathlib.Path.symlink_to, pathlib.Path.hardlink_to):
        for name, status in (("lock", OK), ("restarts", CANNOT_WRITE)):
            link(made / name, victim)
            restart(made, 70, "--stalled-restarts", 50, "--record", "--in-job", expect=status)
            assert victim.read_text() == LOCK, (name, link)
            for path in (made / "lock", made / "restarts"):
                path.unlink(missing_ok=True)
    (made / "checkpoints").mkdir()
    for text, expected in (("step-00000008.h5", "step-00000008.h5"), ("/etc/passwd", "none"), ("step-1.h5 70 x", "none"),
                           ("../step-00000008.h5", "none")):
        (made / "checkpoints" / "latest").symlink_to(text)
        assert f"at checkpoint {expected}: " in restart(made, 70), text
        (made / "checkpoints" / "latest").unlink()


def hosts_are_named_by_thousands_of_logs(folder):
    made = folder / "run"
    for rank in range(3000):
        says = "rank 7 (n8) is gone (its node does not answer; last heard of in data)" if rank != 7 else "rank 7 of 3000"
        logged(made, f"2026-11-25 10:00:00.100 E {says}\n", rank)
    (made / "restarts").write_text("7 70 step-00000010.h5 2026-11-25T09:00:00 in-job named=n2,n8\n")
    told = values(made, 70, "--since", "2026-11-25 10:00:00")
    assert [told[name] for name in ("unreachable", "suspect", "repeated", "slow")] == ["n8", "n8", "n8", ""], told
    assert values(made, 70, "--since", "2026-11-25 10:00:01")["suspect"] == ""
    assert "suspect" not in values(made, 75, "--since", "2026-11-25 10:00:00"), "a stopped run gives back its nodes"


def fewer_ranks_keep_the_global_batch(folder):
    """Of a run without a checkpoint; another one keeps its own."""
    for options, expected in ((["--batch-size=4", "--global-batch-size=0", "--accumulate=2"], "64"), ([], "256"),
                              (["--batch-size=0", "--global-batch-size=48", "--accumulate=3"], "48")):
        assert run(["restart", folder / "run", "--ranks", 8, *options]).strip() == expected, options
    (folder / "run" / "checkpoints").mkdir(parents=True)
    (folder / "run" / "checkpoints" / "latest").symlink_to("step-00000007.h5")
    assert run(["restart", folder / "run", "--ranks", 8]) == ""


if __name__ == "__main__":
    main([statuses_are_answered_as_documented, success_needs_a_log, restarts_of_a_submission_are_counted,
          a_restart_within_the_job_frees_the_lock_of_its_ranks, nothing_is_written_through_links_in_a_run_directory,
          hosts_are_named_by_thousands_of_logs, fewer_ranks_keep_the_global_batch])
