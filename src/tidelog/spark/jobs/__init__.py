"""Batch jobs over all history, with Spark as the scheduler and the work in Python; and what all jobs of Spark share.

compress      compresses days that are old enough
expire        removes days that are older still
verify        audits a journal in parallel
verify_copy   audits a copy in an object store in parallel: manifests, objects, and its lineages as journals

job           what compress and expire share: items are found and run in waves, by one job at a time
waves         runs some items at a time as tasks of Spark, and hands over results as they come
pace          limits: streams an hour, bytes a second

feed_job      what `lake` and `view` share: a job that follows a server's feed
feed_query    the Spark query that hands the batches of a feed to a job
query_error   why a query of Spark's ended, as one of our errors
figures       figures of jobs without end

job_lease     the lease of a running job, and how it is stopped
report        the hashes in which jobs report
lazy_session  the Spark session of a job, started when there is work

several          several jobs in one process, each on its schedule
schedule         when a job runs
several_report   what such a process reports
shared_session   the session that its jobs share
pools            which of them gets a core that is free

To add a job, write one module with it (here, or in a package of its own like `lake`), and add one row to the table of
`tidelog pipeline` in the command line.
"""
