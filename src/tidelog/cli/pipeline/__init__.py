"""`tidelog pipeline`: commands that run jobs on Spark, and show how far they are.

    compress   turn old days of job sets into batches
    expire     remove old days of job sets
    lake       keep Delta tables equal to a server
    view       keep views that are declared in SQL
    verify     check a journal, or a copy of one, on many cores
    verified_copy  what is printed about a copy
    status     how far the jobs of a server are
    runner     runs a job: session, signals, progress, summary, exit status
    session    the Spark session, and the signals that stop a job
    day_jobs   what compress and expire share

A new job is one module that hands its work to `runner.JobRun`, and one row in `cli/app.py`.
"""
