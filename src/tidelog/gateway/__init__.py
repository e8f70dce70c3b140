"""The HTTP edge: /metrics, /health, /feed and channels.

app               puts the pages together and runs them
http_connection   how many connections there may be, and how long a request may take to arrive
request_line      lets requests begin one by one, so that a flood of them starves nobody
hosts             refuses requests from other sites' pages
access            authentication: the same password as for Redis clients
feed              /feed: reads the query and opens a change feed
event_stream      a change feed as server-sent events
channels          channels, beside the other pages
own_channels      ... whose backend is the server itself
ruled_channels    ... that a file of rules configures
channels_alone    channels without a server of ours: on a Redis, or a Tidelog elsewhere
metrics           /metrics: the numbers of a server
stream_metrics    those of streams: memory, disk, and what became of nodes
replication_metrics  those of replication
shipping_metrics  those of the copy in an object store
history_metrics   and of what lies only there
pipeline_metrics  the numbers that jobs of the pipeline publish, for /metrics
sample            the text format of Prometheus
"""
