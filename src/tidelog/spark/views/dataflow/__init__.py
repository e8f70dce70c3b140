"""Keeping a view: a plan is applied to what changes, and the result is written as hashes and as a table.

job            the job `view`: batches of a feed, applied by each view
maintained     one view that is kept: its state, and what a batch does to it
flow           the tasks of a batch, put together as Spark jobs; a drawing of them is at its top

change_reader  the changes of the sources of views, read by tasks
extract        events of a feed become changes of rows
members        members of JSON objects as columns of text
changes        changes of rows as a table, and how they compose
packing        tables as one value for the JVM, and the bucket of each row

row_task       changes are applied to rows
join_tasks     rows of lookups that belong to rows of the source, and the other way round
evaluation     the plan's SQL, run by Spark
reduce_task    what rows contribute, reduced to what happens to groups
group_task     groups are brought up to date
result_task    rows of the view are written

components     what is kept of a group, so that changes alone decide what becomes of it
sums           exact sums
values         values in the order of Spark
pairs          two values as one key
group_names    the key of a group as text
told           what tasks tell the driver

shown_rows     the rows of a view, read from its groups
hashes         the hashes of a view on the server
correction     all hashes, compared with the rows and corrected
result_table   the rows of a view as a table in the lake
merge_job      runs are merged beside the batches

folders        where views lie in a lake
checking       a view compared with its recomputation ...
comparison     ... bucket by bucket
dropping       a view removed

From `views.sql` this package takes `View`, `ViewSource`, `in_order`, `plan_view`, `ViewPlan` and its parts, and nothing
else.
"""
