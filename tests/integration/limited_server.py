"""A server with other limits than usual: run as `limited_server.py '{"RETAIN_BYTES": 0, ...}' serve ...`."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Final

COMMAND: Final = [sys.executable, "-P", str(Path(__file__).resolve())]
"""The limits follow, then `serve`."""

if __name__ == "__main__":  # limits are the defaults of what is imported after them
    runpy.run_path(str(Path(__file__).parents[1] / "from_sources" / "sitecustomize.py"))
    from tidelog import limits

    for name, value in json.loads(sys.argv.pop(1)).items():
        assert hasattr(limits, name), name
        setattr(limits, name, value)
    from tidelog.cli import main

    main()
