#!/bin/sh
# Runs a pipeline on the Direct runner, in one process:
#
#     runners/direct/submit.sh pipelines/province.py --name_server=127.0.0.1:9876 --source_topic=a --sink_topic=b
set -eu

if [ $# -eq 0 ]; then
    echo "usage: $0 PROGRAM [options of the program]" >&2
    exit 2
fi
exec "${PYTHON:-python}" "$@" --runner=DirectRunner
