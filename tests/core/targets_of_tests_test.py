"""targets_of_tests_test.py SOURCE BUILD: tests scripts/targets_of_tests.py, by which `scripts/test NAME...` builds what a test runs."""

import subprocess
import sys

SOURCE, BUILD = sys.argv[1:]


def found(*names):
    answer = subprocess.run([sys.executable, f"{SOURCE}/scripts/targets_of_tests.py", BUILD, *names], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    tests, *targets = answer.stdout.splitlines()
    return tests.removeprefix("^(").removesuffix(")$").replace("\\", "").split("|"), targets


assert found("core_test") == (["core_test"], ["tests/core/core_test"])
ranks, targets = found("rendezvous_test")
assert len(ranks) > 2 and "tests/comm/rendezvous_test" in targets and "tests/comm/mailbox_test" not in targets, (ranks, targets)
assert found(ranks[0])[0] == [ranks[0]]
# The program, the host in a GPU's place, and the libraries that plant faults.
tests, targets = found("system.device", "system.watchdog")
assert tests == ["system.device", "system.watchdog"], tests
assert {"lockstep", "tests/compute/modules/host/lockstep-cuda.so", "tests/system/liblockstep_faulty_rank.so"} <= set(targets), targets
assert found("system.device.soak")[0] == ["system.device.soak"]
assert "fuzz.short" not in found("fuzz")[0] and "core_test" in found("core")[0]
assert found("install.tree")[1] == ["all"]
unknown = subprocess.run([sys.executable, f"{SOURCE}/scripts/targets_of_tests.py", BUILD, "sytem.device"], capture_output=True, text=True)
assert unknown.returncode == 64 and not unknown.stdout and "system.device," in unknown.stderr, unknown
