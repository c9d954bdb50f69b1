"""Thousands of rules on each message. The formats make one representation (`ir`), which one plan compiles and runs."""
