"""A simulated replica over HTTP: an engine's API, batching and reports in real time; no model.

`weft bench replica` starts one. It never pretends to be a real engine: `/v1/models` says
`"owned_by": "weft-simulated"` and `"simulated": true`, and so do `/weft/state` and its log.
"""
