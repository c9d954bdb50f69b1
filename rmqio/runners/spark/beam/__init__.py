"""The fence around Beam's private API: everything private that the runner depends on is in this package.

Another version of Beam may change it. These files, and the tests that name them, then show what to check.
"""
