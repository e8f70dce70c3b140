"""`bin/demo`: the journal at work, on the real disk, in about ten seconds.

    bank        the workload: transfers between accounts, over shards, with group commit
    child       the process that is killed in the middle of writing
    stage       how it is told, and what was claimed and did not hold
    acts        what is shown, one function an act
    __main__    the command

Every figure that is printed was measured in the same run, and everything that is claimed is checked: the exit status is
0 only if all of it held.
"""
