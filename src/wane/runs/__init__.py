"""The run folder and everything that knows a file name in it: config, layout, readers, store, lock, archive."""
