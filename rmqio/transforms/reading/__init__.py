"""How topics and queues become elements: discovery, the splittable DoFn of a queue, reads of planned ranges."""
