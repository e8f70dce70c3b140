"""The demo: Tidelog's main job from end to end, with real processes, in about two minutes. `bin/demo` runs it.

    __main__    the command
    acts        the acts while events come in: bring them in, move them, crash a consumer and the server, compare
    history     the acts over old days: compress them, ask Spark about them, examine the journal
    lake        the acts about views and the lake
    scene       the state that the acts share
    stage       prints what happens, and counts the claims that did not hold
    week        a week of job events, made from a seed: the ledger that everything is compared with
    digest      number, order and bytes of the messages of a job set: the things that are compared
    processes   the server and the other children: how they are started, killed and stopped
    mover       a child: a consumer that moves messages from incoming streams into day streams
    watcher     a child: a change feed
    analyst     a child: Spark
    query       the questions that Spark is asked
    views       how the views are declared, and what they have to contain

Every printed figure was measured in the same run, and every claim is checked: the exit status is 0 only if all claims
held. The demo is a package of the checkout; it is not installed with Tidelog.
"""
