"""The fence around what of Beam is no public interface: everything private that the runner stands on is in here.

Another version of Beam may move it: then these files, and the tests that name them, say what to look at.
"""
