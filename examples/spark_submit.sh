#!/bin/sh
# Submits json_rows.py to a Spark cluster. Any other Beam program of this folder works as well.
#
#     rmqio local --port 9876 --topic orders:4 --topic totals &
#     examples/spark_submit.sh spark://HOST:7077 --name_server=127.0.0.1:9876
#
# Without a cluster, the master local[1] runs it on this machine. The options after the master go to json_rows.py, and
# spark-submit takes its own settings from spark-defaults.conf in SPARK_CONF_DIR. Each worker must reach the broker, and
# needs PYSPARK_PYTHON, a Python with `rmqio[spark]` in the versions of this one (docs/spark-cluster.md has other ways).
#
# The totals are then in the topic: `rmqio peek totals` shows them. What the program prints is in the executors' stderr;
# with local[1], it is printed here.
set -eu

if [ $# -eq 0 ]; then
    echo "usage: $0 MASTER [options of json_rows.py], e.g. $0 spark://HOST:7077 --name_server=HOST:9876" >&2
    exit 2
fi
master=$1
shift
export PYSPARK_PYTHON="${PYSPARK_PYTHON:-$(command -v python3)}"

# rmqio.runners.options finds the session of spark-submit, and the master with it
exec spark-submit --master "$master" "$(dirname "$0")/json_rows.py" --runner=SparkRunner "$@"
