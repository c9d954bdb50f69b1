"""The parts of Kubernetes' kinds that our manifests use, as JSON Schemas. What is not here is refused, so that a typing
error in a manifest is an error of the test.

Written after the references of Kubernetes 1.34, kubeflow/spark-operator v1beta2 and Flink's operator v1beta1.
"""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string", "minLength": 1}
WHOLE: Final[Schema] = {"type": "integer", "minimum": 0}
TEXTS: Final[Schema] = {"type": "array", "items": TEXT, "minItems": 1}
MAP: Final[Schema] = {"type": "object", "additionalProperties": {"type": "string"}}
NAME: Final[Schema] = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}
QUANTITY: Final[Schema] = {"type": "string", "pattern": r"^\d+(\.\d+)?(m|[kKMGT]i?)?$"}
JAVA_MEMORY: Final[Schema] = {"type": "string", "pattern": r"^\d+[kmgtKMGT]$"}


def one(required: str = "", /, **properties: Schema) -> Schema:
    """An object that has these properties and no others."""
    found: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return found | {"required": required.split()} if required else found


def many(item: Schema) -> Schema:
    return {"type": "array", "items": item, "minItems": 1}


METADATA: Final = one("name", name=NAME, labels=MAP, namespace=NAME, annotations=MAP)
ENV: Final = many(
    one(
        "name",
        name={"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        value={"type": "string"},
        valueFrom={"type": "object"},
    )
)
MOUNTS: Final = many(one("name mountPath", name=NAME, mountPath=TEXT, readOnly={"type": "boolean"}))
VOLUMES: Final = many(
    one("name", name=NAME, persistentVolumeClaim=one("claimName", claimName=NAME), secret={"type": "object"})
)
AMOUNTS: Final = one(cpu=QUANTITY, memory=QUANTITY)
CONTAINER: Final = one(
    "name",
    name=NAME,
    image=TEXT,
    imagePullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
    command=TEXTS,
    args=TEXTS,
    env=ENV,
    resources=one(requests=AMOUNTS, limits=AMOUNTS),
    volumeMounts=MOUNTS,
    securityContext=one(
        allowPrivilegeEscalation={"type": "boolean"}, capabilities=one(drop=TEXTS), runAsNonRoot={"type": "boolean"}
    ),
)
POD_SECURITY: Final = one(runAsNonRoot={"type": "boolean"}, runAsUser=WHOLE, fsGroup=WHOLE)
POD: Final = one(
    "containers",
    containers=many(CONTAINER),
    volumes=VOLUMES,
    restartPolicy={"enum": ["Always", "OnFailure", "Never"]},
    terminationGracePeriodSeconds=WHOLE,
    serviceAccountName=NAME,
    securityContext=POD_SECURITY,
)
TEMPLATE: Final = one("spec", metadata=one(labels=MAP, annotations=MAP), spec=POD)

_SPARK_POD: Final[dict[str, Schema]] = {
    "cores": {"type": "integer", "minimum": 1},
    "coreLimit": QUANTITY,
    "memory": JAVA_MEMORY,
    "memoryOverhead": JAVA_MEMORY,
    "serviceAccount": NAME,
    "podSecurityContext": POD_SECURITY,
    "labels": MAP,
    "env": ENV,
    "volumeMounts": MOUNTS,
}
_FLINK_POD: Final[dict[str, Schema]] = {
    "replicas": {"type": "integer", "minimum": 1},
    "resource": one(cpu={"type": "number", "exclusiveMinimum": 0}, memory=JAVA_MEMORY, ephemeralStorage=QUANTITY),
    "podTemplate": TEMPLATE,
}


def kind(version: str, name: str, spec: Schema) -> Schema:
    constants = {"apiVersion": {"const": version}, "kind": {"const": name}}
    return one("apiVersion kind metadata spec", **constants, metadata=METADATA, spec=spec)


KINDS: Final[dict[str, Schema]] = {
    "Deployment": kind(
        "apps/v1",
        "Deployment",
        one(
            "selector template",
            replicas=WHOLE,
            strategy=one("type", type={"enum": ["Recreate", "RollingUpdate"]}),
            selector=one("matchLabels", matchLabels=MAP),
            template=TEMPLATE,
        ),
    ),
    "Job": kind("batch/v1", "Job", one("template", backoffLimit=WHOLE, template=TEMPLATE)),
    "SparkApplication": kind(
        "sparkoperator.k8s.io/v1beta2",
        "SparkApplication",
        one(
            "type sparkVersion mainApplicationFile driver executor",
            type={"enum": ["Java", "Python", "R", "Scala"]},
            pythonVersion={"enum": ["2", "3"]},
            mode={"enum": ["cluster", "client"]},
            image=TEXT,
            imagePullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
            sparkVersion=TEXT,
            mainApplicationFile=TEXT,
            arguments=TEXTS,
            sparkConf=MAP,
            volumes=VOLUMES,
            restartPolicy=one(
                type={"enum": ["Never", "Always", "OnFailure"]},
                onFailureRetries=WHOLE,
                onFailureRetryInterval={"type": "integer", "minimum": 1},
                onSubmissionFailureRetries=WHOLE,
                onSubmissionFailureRetryInterval={"type": "integer", "minimum": 1},
            ),
            driver=one(**_SPARK_POD),
            executor=one(instances={"type": "integer", "minimum": 1}, **_SPARK_POD),
        ),
    ),
    "FlinkDeployment": kind(
        "flink.apache.org/v1beta1",
        "FlinkDeployment",
        one(
            "image flinkVersion jobManager taskManager",
            image=TEXT,
            imagePullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
            flinkVersion={"type": "string", "pattern": r"^v\d+_\d+$"},
            serviceAccount=NAME,
            flinkConfiguration=MAP,
            podTemplate=TEMPLATE,
            jobManager=one(**_FLINK_POD),
            taskManager=one(**_FLINK_POD),
        ),
    ),
}
