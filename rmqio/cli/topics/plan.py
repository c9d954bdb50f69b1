"""Plans a change of a topic on each broker: the options as a value, the differences, and the words for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from rmqio.errors import counted

if TYPE_CHECKING:
    from rmqio.client.admin import TopicConfig

MESSAGE_TYPE: Final = "message.type"
PERMISSIONS: Final = {"rw": 6, "r": 4, "w": 2}
_READ_AND_WRITE: Final = 6
_PERMISSION_TEXT: Final = {6: "read and write", 4: "read only", 2: "write only", 0: "neither read nor write"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of a command that concern a topic; None: the option was not given."""

    queues: int | None = None
    """Readable and writable."""
    write_queues: int | None = None
    """Instead of `queues`, of those that can be written to."""
    permission: int | None = None
    order: bool | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_nothing(self) -> bool:
        return self == Wanted()

    def applied(self, config: TopicConfig) -> TopicConfig:
        """Return the configuration with these changes."""
        read = config.read_queues if self.queues is None else self.queues
        write = next(number for number in (self.write_queues, self.queues, config.write_queues) if number is not None)
        permission = config.permission
        if self.permission is not None:  # other bits are the broker's own
            permission = permission & ~_READ_AND_WRITE | self.permission
        order = config.order if self.order is None else self.order
        attributes = {**config.attributes, **self.attributes}
        return replace(
            config, read_queues=read, write_queues=write, permission=permission, order=order, attributes=attributes
        )

    def options(self) -> str:
        """Return the options of a command that asks for the same."""
        words = [f"--queues {self.queues}"] * (self.queues is not None)
        words += [f"--write_queues {self.write_queues}"] * (self.write_queues is not None)
        words += [f"--permission {name}" for name, number in PERMISSIONS.items() if number == self.permission]
        words += ["--order" if self.order else "--no_order"] * (self.order is not None)
        for name, value in self.attributes.items():
            words.append(f"--message_type {value}" if name == MESSAGE_TYPE else f"--attribute {name}={value}")
        return " ".join(words)


def description(config: TopicConfig) -> str:
    """Describe a configuration: `8 queues, read and write, message type FIFO`."""
    parts = [_queues(config), _permission(config)]
    parts += ["ordered"] * config.order
    parts += [f"{_name(name)} {value}" for name, value in sorted(config.attributes.items())]
    return ", ".join(parts)


def differences(one: TopicConfig, other: TopicConfig) -> list[tuple[str, str]]:
    """Return what differs, in the words of each side: `4 queues` and `8 queues`."""
    found = [
        (_queues(one), _queues(other)),
        (_permission(one), _permission(other)),
        ("ordered" if one.order else "unordered", "ordered" if other.order else "unordered"),
    ]
    for name in sorted({*one.attributes, *other.attributes}):
        values = (config.attributes.get(name, "unset") for config in (one, other))
        old, new = (f"{_name(name)} {value}" for value in values)
        found.append((old, new))
    return [(old, new) for old, new in found if old != new]


def contrast(found: Sequence[tuple[str, str]]) -> str:
    """Say what is there and what should be, from `differences`."""
    return ", ".join(f"{has} (not {asked})" for has, asked in found)


def hidden_queues(before: TopicConfig, after: TopicConfig) -> Sequence[int]:
    """Return the ids of the queues that can no longer be read after a change."""
    return range(after.read_queues, before.read_queues)


def _queues(config: TopicConfig) -> str:
    if config.read_queues == config.write_queues:
        return counted(config.read_queues, "queue")
    return f"{counted(config.read_queues, 'queue')} to read, {config.write_queues} to write"


def _permission(config: TopicConfig) -> str:
    return _PERMISSION_TEXT[config.permission & _READ_AND_WRITE]


def _name(attribute: str) -> str:
    return "message type" if attribute == MESSAGE_TYPE else attribute
