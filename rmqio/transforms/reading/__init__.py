"""Reads of topics and queues: discovery, the splittable DoFn of a queue, and reads of planned ranges."""
