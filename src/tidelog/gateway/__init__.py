"""The HTTP edge. `app` puts it together, `hosts` says who may ask, `metrics` and `health` are what there is so far."""
