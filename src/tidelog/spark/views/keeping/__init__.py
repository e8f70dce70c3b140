"""Keeping a view: a plan is applied to what changes, and the result is written as hashes and as a table.

job            the job `view`: batches of a feed, applied by each view
maintained     one view that is kept: from changes to results

change_reader  the changes of the sources of views, read by tasks
extract        events of a feed become changes of rows
members        members of JSON objects as columns of text
changes        changes of rows as a table, and how they compose
source_rows    the rows of a source, to which changes are applied
row_log        these rows in the lake, from which a later run goes on
arrow_tables   tables in memory that grow change after change

evaluation     the plan's SQL, run by Spark
groups         what rows contribute to groups, and what the groups come to
results        the rows of a view, and its hashes
result_table   the rows of a view as a table in the lake

folders        where views lie in a lake
checking       a view compared with its recomputation
dropping       a view removed

From `views.sql` this package takes `View`, `ViewSource`, `plan_view`, `ViewPlan` and its `Aggregate`s, and nothing
else.
"""
