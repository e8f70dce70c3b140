"""How commands print.

stdout           tables on a terminal, plain text in a pipe, JSON lines with --json
pipe             what the reader of a pipe has taken out of it, and whether it is still there
values           bytes, times, ranges and operations as text or JSON
job_figures      the figures that a pipeline job reports, as text
live_line        a line on stderr that shows how far a job is
running_counts   counts that grow, and are printed at the end
progress_bar     a progress bar on stderr
"""
