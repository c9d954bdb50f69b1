"""Sends the messages of dead letters back to the topics that they came from. Without Beam.

    rmqio local --port 9876 --topic orders:4 --topic orders-dead &
    python examples/replay.py --name_server=127.0.0.1:9876

Run it when the cause is gone: dead_letters.py fills the topic. With --dry_run, it sends nothing. A letter is sent back
once, because a consumer group remembers how far the last run got. `rmqio replay` does the same from a shell. For one
letter, the program prints this, the reason, and a summary:

    TOPIC   ERROR       LETTERS  SENT  DUPLICATES  NOT SENT
    orders  SerdeError        1     1           0         0
"""

import argparse
import sys

from rmqio.replay import replay

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name_server", help="host:port; default: the environment variable NAMESRV_ADDR")
    parser.add_argument("--dead_letter_topic", default="orders-dead")
    parser.add_argument("--dry_run", action="store_true", help="only show what would be sent")
    arguments = parser.parse_args()

    result = replay(
        arguments.dead_letter_topic,
        name_server=arguments.name_server,
        consumer_group="orders-replay",
        dry_run=arguments.dry_run,
    )
    print(result.table())
    sys.exit(1 if result.not_sent or result.lost else 0)
