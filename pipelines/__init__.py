"""Runnable pipelines, one per file: `build(pipeline, options)` wires the pipeline, `main(argv)` runs it."""
