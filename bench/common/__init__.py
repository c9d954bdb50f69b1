"""The parts that several benchmarks share: processes, the JVM, settings, and results as tables."""
