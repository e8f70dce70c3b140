"""Taking a view apart: from the file that declares it to a plan of how it is kept.

definition   the file that declares views
query        a view's SELECT, taken apart; whatever cannot be kept up to date is refused here
grammar      SQL as a tree
tables       which table and column a name means
functions    what is known about Spark's functions
aggregates   functions in the SELECT: refused, or what is kept for them
plan         the result: how a view is kept

Nothing here needs a Spark session or a server. Three things leave this package, and `views.dataflow` uses nothing else
of it: `View` (with its `ViewSource`s), `plan_view`, and the `ViewPlan` that it returns.
"""
