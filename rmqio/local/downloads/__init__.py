"""Artefacts from a Maven repository: the repository to use, and downloads that resume."""
