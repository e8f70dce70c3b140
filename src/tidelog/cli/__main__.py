"""`python -m tidelog.cli` is `tidelog`."""

from __future__ import annotations

from tidelog.cli import main

if __name__ == "__main__":
    main()
