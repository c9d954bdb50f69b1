"""The cost of `exactly_once`: of its DoFn alone, and of a whole stream."""
