"""Views: the result of a SELECT over what is stored, kept up to date change by change.

definition   the file that declares views
query        a view's SELECT, taken apart into what can be maintained; whatever cannot is refused here
grammar      SQL as a tree: functions stay as they are written
tables       which table and column a name means
functions    what is known about Spark's functions
aggregates   functions in the SELECT: refused, or what is kept for them
plan         how a view is maintained
naming       the hash that has a row of a view

Nothing here needs a Spark session or a server: a view is refused before either is touched.
"""
