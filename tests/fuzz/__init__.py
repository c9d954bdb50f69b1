"""Fuzzing of what decodes bytes that others wrote. `python -m tests.fuzz --help`; the corpus is replayed by
`tests/unit/tools/test_fuzz_corpus.py`.
"""
