"""Calls one function of a file: python run_function.py FILE FUNCTION. Exit status 77 says that it was skipped."""

import importlib.util
import sys
import unittest
from pathlib import Path


def main() -> int:
    path, name = Path(sys.argv[1]), sys.argv[2]
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    try:
        getattr(module, name)()
    except unittest.SkipTest as reason:
        print(reason)
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())
