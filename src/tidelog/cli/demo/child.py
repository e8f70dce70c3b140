"""The process that the demo kills in the middle of writing.

`python -m tidelog.cli.demo.child DIR SEED` prints, a line each:

    <number>    so many transfers are there and acknowledged: printed only after the fsync that made them durable
    writing     now begins the write of one transaction so large that there is time to be killed in it
    written     nobody did
"""

from __future__ import annotations

import sys
from typing import Final

from tidelog import limits
from tidelog.cli.demo.bank import Bank

_TRANSFERS: Final = 2000
_STATEMENTS: Final = 4000
_STATEMENT_BYTES: Final = 12 * limits.KIB

assert _STATEMENTS * _STATEMENT_BYTES < limits.BATCH_BYTES_MAX


def main() -> None:
    folder, seed = sys.argv[1:]
    bank = Bank(folder, int(seed))
    bank.run(_TRANSFERS, on_acknowledged=lambda count: print(count, flush=True))
    bank.append_statements(_STATEMENTS, _STATEMENT_BYTES)
    print("writing", flush=True)
    bank.journal.writer.write()
    print("written", flush=True)


if __name__ == "__main__":
    main()
