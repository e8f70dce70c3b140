"""`bin/demo`: the main job from end to end, with real processes, in about two minutes.

    week                a week of job events, made from a seed; it is the ledger that everything is compared with
    digest              what is compared: number, order and bytes of the messages of a job set
    processes           the server and the children; how they are killed, started again and stopped
    mover               a child: consumer of a group, from incoming streams into day streams
    watcher             a child: change feed
    analyst, query      a child: Spark, and what it is asked
    views               how views are declared, and what they have to be
    scene               what the acts share
    acts, history       what is shown, one function an act: live, then over old days,
    lake                and of views and the lake
    stage               how it is told, and what was claimed and did not hold
    __main__            the command

Every figure that is printed was measured in the same run, and everything that is claimed is checked: the exit status is
0 only if all of it held.
"""
