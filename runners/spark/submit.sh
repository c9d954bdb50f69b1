#!/bin/sh
# Submits a pipeline to Spark:
#
#     runners/spark/submit.sh spark://HOST:7077 pipelines/province.py --name_server=HOST:9876 --source_topic=a --sink_topic=b
#
# The master local[2] runs it on this machine, yarn on YARN. Settings are in spark-defaults.conf beside this script, unless
# SPARK_CONF_DIR names a folder. Each worker must reach the broker, and needs PYSPARK_PYTHON, a Python with `rmqio[spark]`
# in the versions of this one (docs/spark-cluster.md has other ways). spark-submit is that of PySpark.
set -eu

if [ $# -lt 2 ]; then
    echo "usage: $0 MASTER PROGRAM [options of the program], e.g. $0 spark://HOST:7077 pipelines/province.py ..." >&2
    exit 2
fi
master=$1
program=$2
shift 2
export PYSPARK_PYTHON="${PYSPARK_PYTHON:-$(command -v python3)}"
export SPARK_CONF_DIR="${SPARK_CONF_DIR:-$(cd "$(dirname "$0")" && pwd)}"

# rmqio finds the session of spark-submit, and the master with it
exec spark-submit --master "$master" "$program" --runner=SparkRunner "$@"
