"""`python -m weft_run.examples FOLDER`: copy the examples."""

from __future__ import annotations

import sys
from pathlib import Path

from weft_run.examples import copy

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m weft_run.examples FOLDER")
    for path in copy(Path(sys.argv[1])):
        print(path)
