"""Run the test functions of plain test files under a Python that has no pytest; print the failures as JSON."""

import json
import runpy
import sys
import traceback


def main(paths):
    count, failures = 0, []
    for path in paths:
        for name, function in runpy.run_path(path).items():
            if name.startswith("test_"):
                count += 1
                try:
                    function()
                except Exception:
                    failures.append(f"{name}: {traceback.format_exc()}")
    print(json.dumps({"tests": count, "wrong": failures}))


if __name__ == "__main__":
    main(sys.argv[1:])
