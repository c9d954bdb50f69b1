"""Adds up orders by tag, of which one is frequent, and reports how the keys are spread.

    rmqio local --port 9876 --topic orders:4 &
    python examples/hot_keys.py --name_server=127.0.0.1:9876 --skew_report

`SaltedCombinePerKey` gives the results of `CombinePerKey`. It divides the values of a frequent key among several
workers. With --skew_report, the program also prints the shares of keys and queues. For the orders of
write_with_keys.py:

    sale: 112.5
    refund: 52.5
    75.0% 9 'sale'
    25.0% 3 'refund'
"""

import argparse
import json

from rmqio import ReadFromRocketMQ, Record, StartFrom, StopAt
from rmqio.runners import options
from rmqio.skew import SaltedCombinePerKey, SkewReport, measure_shuffles
import apache_beam as beam


def amount(record: Record) -> tuple[str, float]:
    return record.tags or "", float(json.loads(record.body)["amount"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name_server", help="host:port; default: the environment variable NAMESRV_ADDR")
    parser.add_argument("--source_topic", default="orders")
    parser.add_argument("--skew_report", action="store_true", help="print which keys and queues have the most")
    arguments, runner_options = parser.parse_known_args()

    pipeline = beam.Pipeline(options=options(runner_options))
    at = {"name_server": arguments.name_server, "start": StartFrom.earliest(), "stop": StopAt.latest()}
    orders = pipeline | ReadFromRocketMQ(arguments.source_topic, **at)
    amounts = orders | beam.Map(amount).with_output_types(tuple[str, float])
    totals = amounts | "Totals" >> SaltedCombinePerKey(sum)
    totals | beam.MapTuple(lambda tag, total: print(f"{tag}: {total}"))
    if arguments.skew_report:
        measure_shuffles(pipeline)
    result = pipeline.run()
    result.wait_until_finish()
    if arguments.skew_report:
        print(SkewReport.of(result))
