#!/bin/bash
# Spark on Kubernetes starts containers with the word "driver" or "executor", and tells the rest by the environment.
# Any other command is run as it is.
set -eu

case "${1:-}" in
driver)
    shift
    exec tini -s -- "$SPARK_HOME/bin/spark-submit" \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" --deploy-mode client "$@"
    ;;
executor)
    shift
    # Java's options are in variables that are numbered: SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1 ...
    options=()
    number=0
    while name="SPARK_JAVA_OPT_$number" && [ -n "${!name+set}" ]; do
        options+=("${!name}")
        number=$((number + 1))
    done
    path="${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_HOME/jars/*"
    [ -z "${SPARK_EXTRA_CLASSPATH:-}" ] || path="$path:$SPARK_EXTRA_CLASSPATH"
    exec tini -s -- java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "$path" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec tini -s -- "$@"
    ;;
esac
