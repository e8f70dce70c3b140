"""How commands print.

stdout         tables on a terminal, plain text in a pipe, JSON lines with --json
values         bytes, times, ranges and operations as text or JSON
job_figures    the figures that a pipeline job reports, as text
live_line      a line on stderr that shows how far a job is
progress_bar   a progress bar on stderr
"""
