"""`python -m weft.examples.workflows FOLDER`: copy the examples."""

from __future__ import annotations

import sys
from pathlib import Path

from weft.examples.workflows import copy

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m weft.examples.workflows FOLDER")
    for path in copy(Path(sys.argv[1])):
        print(path)
