"""A simulated replica over HTTP: an engine's API, batching and reports in real time, without a
model.

`weft bench replica` starts one. It always identifies itself: `/v1/models` contains `"owned_by":
"weft-simulated"` and `"simulated": true`. `/weft/state` and the log also say that it is simulated.
"""
