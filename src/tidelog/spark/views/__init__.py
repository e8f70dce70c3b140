"""Views: the result of a SELECT over what is stored, kept up to date change by change.

sql       taking the SQL apart: from a declaration to a plan, without Spark and without a server
dataflow  keeping the result: a plan applied to what changes, by executors
naming    the hash that holds a row of a view

The boundary between the two is small. `sql` hands over a `View` (what the user declared) and a `ViewPlan` (text and
names that say how to keep it). `dataflow` does not look at SQL trees, and `sql` does not know how rows are stored.
"""
