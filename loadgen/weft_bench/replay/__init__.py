"""Programs played over HTTP, against whatever answers: `weft bench replay`."""
