"""Runs the test functions of a file; common to the tests in Python."""

import pathlib
import shutil
import sys
import tempfile
import time


class Skipped(Exception):
    """Raised with a reason to skip a test."""


def main(tests, usual=None, check=lambda: None):
    """Runs the functions named on the command line, else the `usual` ones (all), each with a separate folder and then `check`;
    exits with status 1 if any failed."""
    failed = 0
    chosen = sys.argv[1:]
    unknown = set(chosen) - {test.__name__ for test in tests}
    assert not unknown, f"no such test: {unknown}"
    for test in [test for test in tests if test.__name__ in chosen] or (tests if usual is None else usual):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-test-")).resolve()
        begin = time.monotonic()
        try:
            test(folder)
            check()
            print(f"ok      {test.__name__} ({time.monotonic() - begin:.1f} s)", flush=True)
        except Skipped as why:
            print(f"skipped {test.__name__}: {why}", flush=True)
        except Exception as error:  # noqa: BLE001 - every failure is reported, then the next test runs
            failed += 1
            print(f"FAILED  {test.__name__}: {type(error).__name__}: {error}", flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if failed else 0)
