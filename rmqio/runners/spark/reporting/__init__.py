"""Reports of a run: from tasks to the driver, as metrics, progress, and bundles to finalize."""
