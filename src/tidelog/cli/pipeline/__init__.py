"""`tidelog pipeline`: commands that run jobs on Spark, and show how far they are.

    compress   turn old days of job sets into batches
    expire     remove old days of job sets
    lake       keep Delta tables equal to a server
    optimize   few large files in a lake, sorted by key
    view       keep views that are declared in SQL
    verify     check a journal, or a copy of one, on many cores
    verified_copy  what is printed about a copy
    status     how far the jobs of a server are
    run        several of these jobs in one process, each on its schedule
    jobs_file  the file that names them
    run_display    how far they are, on a terminal
    hosting    how a command runs as one of several jobs
    runner     runs a job: session, signals, progress, summary, exit status
    session    the Spark session, and the signals that stop a job
    day_jobs   what compress and expire share

A new job is one module that hands its work to `runner.JobRun`, one row in `cli/app.py`, and one in `jobs_file.JOBS`.
"""
