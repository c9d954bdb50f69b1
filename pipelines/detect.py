"""Detection: reads events (JSON objects), and writes an alert for each rule that an event matches.

Rules come from files, or from a topic whose messages have the name of a file as key and its text as body. When they
change, new ones are in force within --refresh_s. If they cannot be used, those before stay, and the log says which
file, line and rule is wrong. With --enrich, each event gets columns of a table of files before the rules see it.

An alert is {"rule", "title", "level", "tags", "rules_version", "conditions", "topic", "broker", "queue", "offset",
"event"}. A message that is no JSON object goes to --dead_letter_topic; without one, it is left out and logged.

example:
  python pipelines/detect.py --name_server=127.0.0.1:9876 \\
    --source_topic=events --sink_topic=alerts \\
    --rules='rules/*.yml' --dead_letter_topic=bad-events
"""

from __future__ import annotations

from rmqio import enrich, rules
from rmqio.runners import Program

program = Program(__file__, __doc__, source="event", sink="alert", dead_letters="messages that are not JSON objects")
rules.add_arguments(program.parser)
enrich.add_arguments(program.parser)
program.add_check(rules.check_arguments)
program.add_check(enrich.check_arguments)
if __name__ == "__main__":
    program.check()  # before Beam, whose import takes seconds

import argparse
import logging
import sys
from typing import Final

from rmqio import ReadFromRocketMQ, WriteToRocketMQ
from rmqio.transforms import LogFailures
import apache_beam as beam

LOGGER: Final = logging.getLogger("detect")


def build(pipeline: beam.Pipeline, options: argparse.Namespace) -> None:
    """Raises `RuleError`, with every problem, for rules that cannot be used."""
    ruleset = rules.from_arguments(options, **options.cluster)
    correlations = (ruleset.usable() if options.on_bad_rule == "skip" else ruleset.loaded()).correlations
    if correlations:
        text = "%d correlation rules, such as %s, are left out: detect.py matches single events"
        LOGGER.warning(text, len(correlations), correlations[0].id)
    match = rules.MatchRules(
        ruleset,
        refresh_s=options.refresh_s,
        match=options.match,
        on_bad_rule=options.on_bad_rule,
        **options.dead_letters,
    )
    read = ReadFromRocketMQ(**options.read, batches=True)
    add_columns = enrich.from_arguments(options, **options.dead_letters)
    if not options.dead_letters:
        read, match = read.with_error_handler(LogFailures()), match.with_error_handler(LogFailures())
        add_columns = add_columns and add_columns.with_error_handler(LogFailures())
    events = pipeline | "Read events" >> read
    if add_columns is not None:
        events |= "Enrich" >> add_columns
    alerts = (events | "Match" >> match).hits
    write = WriteToRocketMQ(**options.write, batches=True, fail_on_error=True, with_sent=False)
    _ = alerts | "To messages" >> rules.AlertMessages() | "Write alerts" >> write


if __name__ == "__main__":
    sys.exit(program.run(build))
