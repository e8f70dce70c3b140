"""The kind `days`: the events of job sets, from hot and compressed days alike.

kind      the kind and its batch reader
reading   how a task reads its part of a day, even while the day is being compressed
columns   events as columns
"""
