"""Copies large orders to another topic as a stream of plain PySpark. Without Beam.

    rmqio local --port 9876 --topic orders:4 --topic large-orders &
    python examples/pyspark_stream.py --name_server=127.0.0.1:9876 --checkpoint_dir=/var/tmp/large-orders --stop=latest

Without --stop, it runs until Ctrl-C. The next run with the same checkpoint continues there. At the end, it prints what
its last micro-batches have read. For the orders of write_with_keys.py, with --stop=latest, that is:

    micro-batch 0: 12 messages
"""

import argparse
import os
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name_server", help="host:port; default: the environment variable NAMESRV_ADDR")
    parser.add_argument("--source_topic", default="orders")
    parser.add_argument("--sink_topic", default="large-orders")
    parser.add_argument("--checkpoint_dir", required=True, help="where Spark keeps the position")
    parser.add_argument("--stop", choices=["latest"], help="where to end; default: never")
    arguments = parser.parse_args()
    at = {"nameServer": arguments.name_server} if arguments.name_server else {}

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else Spark runs the first python3 on the PATH
    spark = SparkSession.builder.appName("pyspark_stream").getOrCreate()

    source = spark.readStream.format("rocketmq").options(**at, startingOffsets="earliest")
    messages = source.option("subscribe", arguments.source_topic).load()
    amount = F.get_json_object(F.col("body").cast("string"), "$.amount").cast("double")
    large = messages.where(amount > 20).select("body", "tags", "keys")

    sink = large.writeStream.format("rocketmq").options(**at, checkpointLocation=arguments.checkpoint_dir)
    sink = sink.trigger(availableNow=True) if arguments.stop else sink.trigger(processingTime="1 second")
    query = sink.option("topic", arguments.sink_topic).start()
    try:
        while query.isActive:
            time.sleep(1)  # awaitTermination() waits in Java, where Ctrl-C makes PySpark log tracebacks
        query.awaitTermination()  # raises the error of a query that has failed
    except KeyboardInterrupt:
        query.stop()
    for batch in query.recentProgress:
        if batch.numInputRows:
            print(f"micro-batch {batch.batchId}: {batch.numInputRows} messages")
