"""`tidelog events`: commands for the day streams of job sets, on Tidelog or any Redis.

put     write messages
tail    read messages, over all days
ls      the job sets and their days
"""
