"""Work in the background: files, batches, and runs over HTTP."""
