"""The common part of all command lines: their parser, the arguments that they share, text on a terminal."""
