"""Jobs that sweep over everything there is, with Spark as the scheduler and the work in Python.

compress   days of job sets that are old enough become batches
expire     days that are older still are removed
verify     the audit of a journal, side by side

job        what compress and expire share: found in waves, one at a time, stopped in order
waves      some items at a time as tasks of Spark, results as they come
holding    the lease of a running job
report     the hash in which it says how far it is, and the figures of jobs without end
pace       not more than so many streams an hour, so many bytes a second
"""
