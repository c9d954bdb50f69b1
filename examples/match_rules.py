"""Finds the orders that meet rules, and says which rule each of them meets.

    rmqio local --port 9876 --topic orders:4 &
    python examples/match_rules.py --name_server=127.0.0.1:9876

Rules are mostly files: RuleSet.from_files("rules/*.yml") reads Sigma, SQL conditions and JSON, and RuleSet.from_topic
reads rules that change while the pipeline runs. For the orders of write_with_keys.py, the program prints:

    o-0 is free
    o-9 is large
    o-10 is large
    o-11 is large
"""

import argparse
import json

from rmqio import ReadFromRocketMQ, StartFrom, StopAt
from rmqio.rules import And, Atom, Kind, Match, MatchRules, Not, Rule, RuleSet
from rmqio.runners import options
import apache_beam as beam

RULES = RuleSet.of(
    [
        Rule("large", And((Atom("amount", Kind.GREATER, 20), Not(Atom("customer", Kind.EQUALS, "c-9")))), level="high"),
        Rule("free", Atom("amount", Kind.EQUALS, 0), level="low"),
    ]
)


def show(hit: Match) -> None:
    print(json.loads(hit.message.body)["order_id"], "is", hit.rule_id)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name_server", help="host:port; default: the environment variable NAMESRV_ADDR")
    parser.add_argument("--source_topic", default="orders")
    arguments, runner_options = parser.parse_known_args()

    with beam.Pipeline(options=options(runner_options)) as pipeline:
        orders = pipeline | ReadFromRocketMQ(
            arguments.source_topic,
            name_server=arguments.name_server,
            start=StartFrom.earliest(),
            stop=StopAt.latest(),
        )
        hits, errors = orders | MatchRules(RULES)
        hits | "Show" >> beam.Map(show)
        errors | "Show what is not JSON" >> beam.Map(lambda failure: print(failure.reason))
