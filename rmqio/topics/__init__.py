"""The topics of a pipeline: subscriptions, and the look-up of topics when a pipeline is submitted."""
