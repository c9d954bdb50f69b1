"""Parts that several of the pipelines share: options, the start of a job, provinces."""
