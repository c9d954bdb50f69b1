"""Errors of pipelines as the user sees them: the user's frames, without those of Beam and ours."""
