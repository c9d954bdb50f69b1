"""`WriteToRocketMQ` and `WriteDeadLetters`: the configuration of a write, checked when it is built, and expansion."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, Self, get_origin

import apache_beam as beam
from apache_beam import PCollection, typehints
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.transforms.display import DisplayDataItem
from apache_beam.transforms.error_handling import ErrorHandler
from apache_beam.typehints import List
from apache_beam.typehints.typehints import ListConstraint, UnionConstraint

from rmqio.batches import Batch, MessageBatch
from rmqio.claims.check import ClaimCheck, checked_claim_check
from rmqio.dead_letters.letters import letter_id
from rmqio.errors import LocalError, RmqioError
from rmqio.interfaces import EXACTLY_ONCE, IDS, QUEUES, RANDOM_IDS, ClientFactory
from rmqio.model import Message, Record, SendResult
from rmqio.options import ClientOptions, WriteOptions, parse_name_server
from rmqio.repeats import LookBack
from rmqio.security import Security
from rmqio.sending.batches import FailedMessage
from rmqio.topics import require_writable, validate_group, validate_topic
from rmqio.transforms.coders import BatchConstraint
from rmqio.transforms.failures import COMPRESS_OVER_BYTES, WriteLetters, compressing
from rmqio.transforms.reading.in_process import is_in_process, reads_before, reads_of
from rmqio.transforms.reading.options import changed_options, check_trace, describe, name_of
from rmqio.transforms.writing.elements import (
    DefaultIds,
    IdFunction,
    MessageMaker,
    Serializer,
    TopicSelector,
    as_selector,
    default_ids,
)
from rmqio.transforms.writing.exactly_once import MARKS, MovePosition
from rmqio.transforms.writing.outputs import FAILED, LETTERS, SENT
from rmqio.transforms.writing.sink_state import Sink
from rmqio.transforms.writing.write_fn import BatchWriteFn, WriteFn

# How a write uses its options: the clients that they describe, and which options would have no effect.
#
# An option without effect is refused when the write is built (docs/options.md), because users who set it rely on it.

_OF_CLIENT: Final = {
    "request_timeout_ms": "request_timeout_ms",
    "max_retries": "max_retries",
    "busy_timeout_ms": "busy_timeout_ms",
    "max_in_flight": "max_in_flight",
    "name_server_poll_interval_ms": "route_refresh_ms",
    "broker_heartbeat_interval_ms": "heartbeat_ms",
    "namespace": "namespace",
    "vip_channel": "vip_channel",
    "compress_over_bytes": "compress_over_bytes",
    "compression": "compression",
    "compression_level": "compression_level",
    "create_topics": "create_topics",
    "client_id_prefix": "client_id_prefix",
    "unit_name": "unit_name",
    "security": "security",
}
"""The write options that configure the client, and their names in `ClientOptions`."""
_ALWAYS_SHOWN: Final = (
    "batch_flush", "max_batch_messages", "max_batch_bytes", "asynchronous", "max_in_flight", "max_retries",
    "request_timeout_ms",
)  # fmt: skip
_SHOWN_ELSEWHERE: Final = frozenset({"name_server", "producer_group", "security"})


def write_client_options(name_servers: tuple[str, ...], options: WriteOptions, *, replica_reads: bool) -> ClientOptions:
    """The client options of a write."""
    given: dict[str, Any] = {theirs: getattr(options, mine) for mine, theirs in _OF_CLIENT.items()}
    return ClientOptions(name_servers, replica_reads=replica_reads, **given)


def refuse_beside_factory(
    name_server: str | tuple[str, ...] | list[str] | None, security: Security | None, options: WriteOptions
) -> None:
    """Raises `LocalError` for options that a user's own `client_factory` would ignore."""
    # The write also uses max_in_flight itself.
    changed = changed_options(options)
    ours = [name for name in ("name_server", *_OF_CLIENT) if name in changed and name != "max_in_flight"]
    given = [
        *(["name_server"] if name_server is not None else []),
        *(["security"] if security is not None else []),
        *(f"WriteOptions.{name}" for name in ours),
    ]
    if given:
        raise LocalError(
            f"{given[0]} and client_factory are both given; the factory knows its "
            f"{given[0].rpartition('.')[2].replace('_', ' ')} already"
        )


def refuse_idle(options: WriteOptions) -> None:
    """Raises `LocalError` for options that have no effect without another one."""
    changed = changed_options(options)
    check_trace(options)
    for names, is_idle, needed in (
        (
            ("max_batch_messages", "max_batch_bytes", "max_total_bytes", "max_wait_ms"),
            not options.batch_flush,
            "batch_flush=True",
        ),
        (("max_in_flight",), not options.asynchronous, "asynchronous=True"),
        (("compression", "compression_level"), options.compress_over_bytes is None, "compress_over_bytes"),
    ):
        for name in names:
            if is_idle and name in changed:
                raise LocalError(
                    f"WriteOptions.{name}={changed[name]!r} does nothing without {needed}: set both or none"
                )


def shown_options(options: WriteOptions, *, of_client: bool) -> dict[str, Any]:
    """Display data: how messages are batched, and all options that differ from their default; no secret.

    Args:
      of_client: whether the options configure a client; False with a user's own factory.
    """
    found = {name: getattr(options, name) for name in _ALWAYS_SHOWN}
    found |= {name: value for name, value in changed_options(options).items() if name not in _SHOWN_ELSEWHERE}
    if of_client:
        found["security"] = describe(options.security)
    return found


def shown_look_back(look_back: LookBack) -> dict[str, Any]:
    """Display data: the fields of a `LookBack` that differ from their default, except the group."""
    changed = changed_options(look_back)
    found = {f"look_back.{name}": value for name, value in changed.items() if name not in ("group", "since")}
    return found if look_back.since_ms is None else found | {"look_back.since_ms": look_back.since_ms}


def _fail(failed: FailedMessage) -> None:
    raise RmqioError(f"cannot write to topic {failed.topic!r}: {failed.error}: {failed.reason}")


_LOGGER = logging.getLogger("rmqio.transforms")
_HINT: Final = ", or the step before it a type hint"

DEFAULT_PRODUCER_GROUP: Final = "rmqio_producer"


class WriteToRocketMQResult(NamedTuple):
    """The outputs of `WriteToRocketMQ`. They keep the window, timestamp and pane of their element."""

    sent: PCollection[SendResult]
    """One result for each acknowledged message, in no particular order. Empty with `with_sent=False`. With `batches`:
    lists of them, each for messages of one batch, in its order."""
    failed: PCollection[FailedMessage]
    """One failure per element, or value of a batch, that can never be sent: too large, illegal property or topic, not
    serializable ..."""


class WriteToRocketMQ(beam.PTransform):
    """Writes each element as one message.

    Elements are `rmqio.Message`; bytes or str (UTF-8), which become the body; `rmqio.Record`, sent again with body,
    tags, keys, sharding key and user properties; or anything that `serializer` converts to a `Message`.

    The topic is the message's own, else the selector's, else `topic`.

    Delivery: at least once. A bundle succeeds only when the broker has acknowledged all of its messages. After the
    client's own retries, a transient error (a broker that is down or busy) fails the bundle, and the runner runs it
    again. With a stable id (`id_fn`; by default for `Record`s), a message that is stored twice has the same id, so that
    `ReadFromRocketMQ` and other consumers can drop the copy.

    A message that can never be sent does not fail the bundle: it goes to the output `failed` with its reason, is
    counted (`send_failures`) and logged as a warning, and the other messages are sent. Consume `failed`, or use
    `with_error_handler`, `dead_letter_topic` or `fail_on_error`. This also applies if a topic that only some elements
    name does not exist or is forbidden. But if the `topic` of this transform is missing or forbidden, or if a known
    topic has vanished (which is how a name server reports that its brokers are down), bundles fail until the topic is
    there again: nothing is dropped because of an outage.

    Order: messages with the same sharding key keep their order within a bundle, in the queue that Java producers choose
    for that key. Messages without a sharding key are spread over the queues batch by batch.

    Args:
      topic: for messages for which neither the message nor the selector names a topic.
      name_server: `host:port`, several separated by semicolons; None: `options.name_server`, else the environment
        variable NAMESRV_ADDR.
      security: credentials, TLS, and which addresses may be used; None: `options.security`.
      producer_group: None: `options.producer_group`, else "rmqio_producer".
      serializer: a callable from each element that is not a `Message` to a `Message`. Any exception sends the element
        to `failed`.
      selector: `ConstantTopic`, `TopicFromFields`, or a callable from the element to a topic, (topic, tag), or None. A
        message's own tag takes precedence over the selector's.
      id_fn: a callable from the element to its stable id: text, the same when the element comes again, unique among
        messages. None: the coordinates of a `Record`; for the result of `serializer` on the direct output of a
        GroupByKey or a combine by key, a hash of key, window, pane and message (in a stream not in the global window);
        for other elements a random id, which is logged once.
      exactly_once: a writer that may repeat work looks back in the sink, and sends only what is missing, so that no
        message is stored twice. Needs stable ids, and a group of this pipeline's own. docs/write.md has all conditions.
      fail_on_error: an element that can never be sent fails the pipeline, so that the offset of what it was made of is
        not committed. Not together with `dead_letter_topic` or an error handler, which keep such elements.
      dead_letter_topic: elements that go to `failed` are also written there, with body, reason, and coordinates if
        known, for `python -m rmqio.replay`. A letter that cannot be written fails the bundle.
      options: batching and retries.
      ordered_by_sharding_key: at most one batch in flight per queue that gets messages with a sharding key. False: such
        queues are as fast as others with `options.asynchronous`, but a retried batch can arrive after a later one, or
        in a queue of another broker.
      with_sent: emit a `SendResult` per message. False: `sent` is empty, which saves time if nothing reads it.
      batches: elements are lists of what they are otherwise, a `Batch` (of `ReadFromRocketMQ(batches=True)`,
        `MapRecords`), or a `MessageBatch` of columns. Everything else stays as it is, but for the outputs: `sent` has
        lists of results, and a failure has the position of its value. Without an `id_fn`, the values of a `Batch` have
        ids that depend on their places.
      claim_check: `ClaimCheck("gs://bucket/claims")`: bodies above its size go to that folder before their messages,
        which carry references, are sent. Readers need it, too.
      backend: "remoting", or "librocketmq": the vendor's C++ client, which must be installed on the workers. Features
        that it does not have are refused; see docs/librocketmq.md.
      client_factory: creates the producer on the workers; None: that of `backend`.

    Raises `LocalError` when it is built or applied, if arguments do not fit together.
    """

    id_advice = "Give id_fn="
    """The end of the warning that ids are random, in the words of whoever built the pipeline."""

    def __init__(
        self,
        topic: str | None = None,
        *,
        name_server: str | tuple[str, ...] | list[str] | None = None,
        security: Security | None = None,
        producer_group: str | None = None,
        serializer: Serializer | None = None,
        selector: TopicSelector | Callable[[Any], Any] | None = None,
        id_fn: IdFunction | None = None,
        exactly_once: LookBack | None = None,
        fail_on_error: bool = False,
        dead_letter_topic: str | None = None,
        options: WriteOptions | None = None,
        ordered_by_sharding_key: bool = True,
        with_sent: bool = True,
        batches: bool = False,
        claim_check: ClaimCheck | None = None,
        backend: Literal["remoting", "librocketmq"] = "remoting",
        client_factory: ClientFactory | None = None,
    ) -> None:
        super().__init__()
        if topic is not None:
            if not isinstance(topic, str):
                raise LocalError(f"topic is {topic!r}; it must be text. For several topics give selector=")
            validate_topic(topic)
        if options is not None and not isinstance(options, WriteOptions):
            raise LocalError(f"options is {options!r}; it must be rmqio.WriteOptions")
        for name, given in (("serializer", serializer), ("id_fn", id_fn)):
            if given is not None and not callable(given):
                raise LocalError(f"{name} is {given!r}; it must be a callable of the element")
        options = options or WriteOptions()
        self._options = options if security is None else replace(options, security=security)
        self._group = producer_group or self._options.producer_group or DEFAULT_PRODUCER_GROUP
        validate_group(self._group)
        self._maker = MessageMaker(topic, as_selector(selector), serializer, id_fn)
        self._ordered = ordered_by_sharding_key
        self._with_sent = with_sent
        self._batches = batches
        self._claim_check = checked_claim_check(claim_check)
        refuse_idle(self._options)
        self._name_servers: tuple[str, ...] = ()
        if client_factory is None:
            self._name_servers = parse_name_server(name_server or self._options.name_server)
        else:
            refuse_beside_factory(name_server, security, options)
        self._client_factory = client_factory
        if backend not in ("remoting", "librocketmq"):
            raise LocalError(f"backend is {backend!r}; it must be 'remoting' or 'librocketmq'")
        if backend != "remoting" and client_factory is not None:
            raise LocalError(f"backend={backend!r} and client_factory are both given; the factory is a backend")
        self._backend = backend
        if dead_letter_topic is not None:
            validate_topic(dead_letter_topic)
            if dead_letter_topic == topic:
                raise LocalError(f"dead_letter_topic is {topic!r}, the topic that is written; give another one")
            if fail_on_error:
                raise LocalError("fail_on_error and dead_letter_topic are both given; the first one keeps no letters")
        self._fail_on_error = fail_on_error
        self._dead_letter_topic = dead_letter_topic
        self._random_ids = False
        self._ids_shown = "id_fn" if id_fn is not None else "not known before it is applied"
        self._exactly_once = exactly_once
        self.positions: frozenset[tuple[str, str]] = frozenset()
        """Groups and topics whose offsets are the position of the sink, known once it is applied: see `commits`."""
        if exactly_once is not None:
            self._check_exactly_once(exactly_once, producer_group or self._options.producer_group)
        self._error_handler: ErrorHandler | None = None

    def _check_exactly_once(self, look_back: LookBack, group: str | None) -> None:
        if not isinstance(look_back, LookBack):
            raise LocalError(f"exactly_once is {look_back!r}; it must be rmqio.LookBack(...)")
        if self._backend != "remoting":
            raise LocalError(f"exactly_once needs backend='remoting': {self._backend!r} repeats sends by itself")
        if self._options.asynchronous:
            raise LocalError("exactly_once waits for each batch: leave WriteOptions.asynchronous out")
        if self._options.max_wait_ms is not None:
            raise LocalError("exactly_once sends only while its bundle runs: leave WriteOptions.max_wait_ms out")
        self._position_group = look_back.group or group
        if self._position_group is None:
            raise LocalError(
                "exactly_once needs a group that no other pipeline writes with: give LookBack(group=...) or "
                "producer_group="
            )
        validate_group(self._position_group)
        validate_group(self._position_group + QUEUES)

    def with_error_handler(self, error_handler: ErrorHandler | None) -> Self:
        """Send `failed` to Beam's error handler, too; None: only to the result."""
        if self._fail_on_error and error_handler is not None:
            raise LocalError("fail_on_error is given, so an error handler would get nothing")
        self._error_handler = error_handler
        return self

    def expand(self, pcoll: PCollection[Any]) -> WriteToRocketMQResult:
        self._check_element_type(pcoll.element_type)
        factory = self._client_factory or self._backend_factory()
        with_letters = self._dead_letter_topic is not None
        ids = self._choose_ids(pcoll)
        sink = None if self._exactly_once is None else self._sink(self._exactly_once, factory, pcoll)
        write_fn = BatchWriteFn if self._batches else WriteFn
        write = write_fn(
            self._maker,
            factory if sink is None else _of_single_tries(factory),
            self._group,
            self._options,
            with_sent=self._with_sent,
            ordered=self._ordered,
            with_letters=with_letters,
            ids=ids,
            sink=sink,
            claim_check=self._claim_check,
        )
        has_position = sink is not None and sink.group is not None
        tags = [FAILED, *([LETTERS] if with_letters else []), *([MARKS] if has_position else [])]
        outputs = pcoll | "Send" >> beam.ParDo(write).with_outputs(*tags, main=SENT)
        sent, failed = outputs[SENT], outputs[FAILED]
        # So that Beam finds our coders: only its newest versions know the types of a ParDo's tagged outputs.
        sent.element_type = List[SendResult] if self._batches else SendResult
        failed.element_type = FailedMessage
        if self._error_handler is not None:
            self._error_handler.add_error_pcollection(failed)
        if self._fail_on_error:
            _ = failed | "Fail" >> beam.Map(_fail)
        if with_letters:
            self._write_letters(outputs[LETTERS], factory)
        if sink is not None and sink.group is not None:  # it has a position
            groups = (sink.group, sink.group + QUEUES)
            self.positions = frozenset((group, topic) for group in groups for topic in self._maker.required_topics)
            marks = outputs[MARKS]
            marks.element_type = bytes
            _ = marks | "Move position" >> beam.ParDo(MovePosition(sink))
        return WriteToRocketMQResult(sent, failed)

    def look_up_topics(self) -> None:
        """Looks up the topics when the pipeline is submitted. Raises `LocalError` if one does not exist."""
        topics = self._maker.required_topics
        if topics and self._backend == "remoting":
            factory = self._client_factory or self._backend_factory()
            require_writable(factory, self._group, sorted(topics))

    def commits(self, group: str, topic: str) -> bool:
        """Whether this transform commits the group's offsets of the topic. Nobody else may commit those of a sink."""
        return (group, topic) in self.positions

    def _choose_ids(self, pcoll: PCollection[Any]) -> DefaultIds | None:
        """The default ids of elements, if they can be the same when a bundle is run again."""
        if self._maker.id_fn is not None:
            return None
        label = pcoll.pipeline.transforms_stack[-1].full_label
        ids = None
        if self._maker.serializer is not None and not self._batches:
            ids = default_ids(pcoll, label, is_stream=_is_stream(pcoll))
        kind = _with_ids(pcoll.element_type, batches=self._batches)
        self._random_ids = ids is None and kind is None
        if ids is not None:
            self._ids_shown = "key, window and pane"
        elif kind is not None:
            self._ids_shown = kind
        else:
            said, advice = RANDOM_IDS, self.id_advice
            if _is_unknown(pcoll.element_type):
                said += f", unless each element is a {'Batch, or a list of Records' if self._batches else 'Record'}"
                advice += _HINT
            self._ids_shown = f"{said}; copies cannot be dropped"
            _LOGGER.warning(
                "%s: ids: %s; when a bundle is run again, its copies cannot be dropped. %s", label, said, advice
            )
        return ids

    def _sink(self, look_back: LookBack, factory: ClientFactory, pcoll: PCollection[Any]) -> Sink:
        """The sink of an exactly-once write. Raises `LocalError` if ids are random.

        A bounded pipeline has no position: failed work starts from the beginning, and a finalizer would turn the
        pipeline into a stream on Flink. The exception is one that runs as a stream anyway, and can continue from a
        checkpoint.
        """
        if self._random_ids:
            kind = pcoll.element_type
            raise LocalError(
                "exactly_once needs ids that are the same when an element comes again, and those of "
                f"{getattr(kind, '__name__', kind)} are random: give id_fn=" + (_HINT if _is_unknown(kind) else "")
            )
        group = self._position_group if _is_stream(pcoll) else None
        reads, commits_s = None, 0.0
        if group is not None and is_in_process(pcoll.pipeline):
            reads = reads_of(pcoll)
        elif group is not None:  # the stream can be started without its checkpoint, from the offsets of groups
            commits_s = max((each.commits_s for each in reads_before(pcoll) if each is not None), default=0.0)
        return Sink(factory, group, look_back, int(time.time() * 1000), reads, commits_s)

    def _write_letters(self, letters: PCollection[Message], factory: ClientFactory) -> None:
        letters.element_type = Message
        write = WriteToRocketMQ(self._dead_letter_topic, id_fn=letter_id, client_factory=compressing(factory))
        _ = letters | "Dead letters" >> WriteLetters(write)

    def _backend_factory(self) -> ClientFactory:
        # Imported here: a user's own factory needs no sockets.
        from rmqio.client.factory import RemotingClientFactory

        # A replica that is behind does not have the newest messages yet, so they would be sent again.
        replica_reads = self._exactly_once is None
        made = write_client_options(self._name_servers, self._options, replica_reads=replica_reads)
        if self._backend == "librocketmq":
            from rmqio.librocketmq import LibrocketmqClientFactory

            return LibrocketmqClientFactory(made)
        return RemotingClientFactory(made)

    def _check_element_type(self, element_type: Any) -> None:
        """Refuses, before anything runs, what would fail for every element."""
        if self._maker.serializer is not None and not self._batches:
            return
        is_list = isinstance(element_type, ListConstraint) or element_type is list
        if self._batches:
            if isinstance(element_type, type) and issubclass(element_type, (Message, Record, bytes, str)):
                raise LocalError(
                    "WriteToRocketMQ(batches=True) writes lists, and its elements are of type "
                    f"{element_type.__name__}: leave batches= out"
                )
            element_type = element_type.inner_type if isinstance(element_type, ListConstraint) else object
        elif is_list or element_type is MessageBatch:
            raise LocalError("WriteToRocketMQ cannot write lists as elements: give batches=True, or serializer=")
        if not isinstance(element_type, type) or element_type is object or self._maker.serializer is not None:
            return
        if not issubclass(element_type, (Message, Record, bytes, str)):
            raise LocalError(
                f"WriteToRocketMQ cannot write elements of type {element_type.__name__}: give serializer=, or elements "
                "of rmqio.Message, rmqio.Record, bytes or str"
            )
        if not issubclass(element_type, Message) and self._maker.topic is None and self._maker.selector is None:
            raise LocalError(
                f"WriteToRocketMQ has no topic for elements of type {element_type.__name__}: give topic= or selector="
            )

    def display_data(self) -> dict[str, Any]:
        maker = self._maker
        shown: dict[str, Any] = {
            "topic": maker.topic,
            "name_server": ";".join(self._name_servers) or None,
            "producer_group": self._group,
            "selector": None if maker.selector is None else str(maker.selector),
            "serializer": name_of(maker.serializer),
            "id_fn": name_of(maker.id_fn),
            IDS: self._ids_shown,
            EXACTLY_ONCE: None if self._exactly_once is None else self._position_group,
            **({} if self._exactly_once is None else shown_look_back(self._exactly_once)),
            "fail_on_error": self._fail_on_error or None,
            "dead_letter_topic": self._dead_letter_topic,
            "client_factory": name_of(self._client_factory),
            "backend": None if self._client_factory is not None else self._backend,
            "ordered_by_sharding_key": self._ordered,
            "with_sent": self._with_sent,
            "batches": self._batches or None,
            "claim_check": None if self._claim_check is None else self._claim_check.path,
            **shown_options(self._options, of_client=self._client_factory is None),
        }
        return {name: DisplayDataItem(value).drop_if_none() for name, value in shown.items()}


def _with_ids(element_type: Any, *, batches: bool) -> str | None:
    """How elements of a type get ids that are the same when they come again; None: they do not."""
    if not batches:
        return "coordinates of records" if element_type is Record else None
    if element_type is MessageBatch:
        return "column of ids"
    types = element_type.union_types if isinstance(element_type, UnionConstraint) else (element_type,)  # of a Flatten
    if all(Batch in (each, get_origin(each)) or isinstance(each, BatchConstraint) for each in types):
        return "places of the batch"
    is_of_records = isinstance(element_type, ListConstraint) and element_type.inner_type is Record
    return "coordinates of records" if is_of_records else None


def _is_unknown(element_type: Any) -> bool:
    """Whether nobody has said what the elements, or those of lists, are."""
    inner = element_type.inner_type if isinstance(element_type, ListConstraint) else element_type
    return inner in (None, object, list, Any, typehints.Any)


def _is_stream(pcoll: PCollection[Any]) -> bool:
    """Whether the input never ends, or the pipeline can continue from a checkpoint anyway."""
    return not pcoll.is_bounded or bool(pcoll.pipeline.options.view_as(StandardOptions).streaming)


def _of_single_tries(factory: ClientFactory) -> ClientFactory:
    """Our own factory with producers that repeat nothing; a user's factory unchanged, which must ensure that itself."""
    from rmqio.client.factory import RemotingClientFactory

    if isinstance(factory, RemotingClientFactory):
        return RemotingClientFactory(replace(factory.options, max_retries=0))
    return factory


# `WriteDeadLetters`: writes failures to a topic, so that `rmqio.replay` can send them back.


class WriteDeadLetters(WriteLetters):
    """Writes each failure as one dead letter: the raw body, with coordinates and error as properties.

    Elements are `ReadFailure`, `FailedMessage`, or a `Message` that is already a letter. The transform can be given to
    Beam's `ErrorHandler`; `dead_letter_topic=` of the other transforms is short for this:

        with ErrorHandler(WriteDeadLetters("dead", name_server=...)) as errors:
            records = pipeline | ReadFromRocketMQ(...).with_error_handler(errors)

    Args:
      topic: a topic that exists.
      name_server, security, options, client_factory: as in `WriteToRocketMQ`.

    Returns: a PCollection of `SendResult`.

    Delivery: at least once. The id of a letter is derived from its origin, so that copies can be recognised. A
    `FailedMessage` has no origin, so its id is derived from the message and the error's class: two equal messages are
    two letters with one id. `dead_letter_topic=` of the write also knows the element. A letter that cannot be written
    (a body of more than 4 MiB that compression does not reduce) raises `SerdeError`, which fails the bundle: the
    group's offset is committed past the message, so the letter would be its last copy.
    """

    def __init__(
        self,
        topic: str,
        *,
        name_server: str | tuple[str, ...] | list[str] | None = None,
        security: Security | None = None,
        options: WriteOptions | None = None,
        client_factory: ClientFactory | None = None,
    ) -> None:
        options = options or WriteOptions()
        if client_factory is None and options.compress_over_bytes is None:
            options = dataclasses.replace(options, compress_over_bytes=COMPRESS_OVER_BYTES)
        write = WriteToRocketMQ(
            topic,
            name_server=name_server,
            security=security,
            options=options,
            id_fn=letter_id,
            client_factory=compressing(client_factory),
        )
        super().__init__(write)
