#!/bin/sh
# Submits a pipeline to Flink:
#
#     runners/flink/submit.sh HOST:8081 pipelines/province.py --name_server=HOST:9876 --source_topic=a --sink_topic=b
#
# The master '[local]' runs it on this machine. On a cluster, start the Python workers beside each TaskManager first, with
# `python -m rmqio.runners.flink workers --port=50000`; WORKERS is their address (default: 127.0.0.1:50000). config.yaml
# beside this script has settings for the cluster's own configuration.
set -eu

if [ $# -lt 2 ]; then
    echo "usage: $0 MASTER PROGRAM [options of the program], e.g. $0 HOST:8081 pipelines/province.py ..." >&2
    exit 2
fi
master=$1
program=$2
shift 2
if [ "$master" != "[local]" ]; then
    set -- --environment_type=EXTERNAL --environment_config="${WORKERS:-127.0.0.1:50000}" "$@"
fi
exec "${PYTHON:-python}" "$program" --runner=FlinkRunner --flink_master="$master" "$@"
