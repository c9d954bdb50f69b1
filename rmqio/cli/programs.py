"""Commands that have packages of their own. Some also run as `python -m`, with the same parsers.

Their modules are imported when one of them is used: `rmqio --help` waits for none of them.
"""

from __future__ import annotations

from typing import Any

from rmqio.command_line.parser import Parser, new_command
from rmqio.errors import LocalError


def add_commands(commands: Any) -> None:
    """Add them."""
    new_command(commands, "watch", None, "watch a running job: lag, rates, brokers", fill=_fill_watch)
    sql = new_command(commands, "sql", None, "run SQL over topics, on any runner", fill=_fill_sql)
    sql.set_defaults(writes=True, named="rmqio sql")
    sql.passes_on = True
    new_command(commands, "rules", None, "check, explain and run rules on topics", fill=_fill_rules)
    copy = new_command(commands, "copy", None, "copy data between topics, files, tables, Kafka", fill=_fill_copy)
    copy.set_defaults(writes=True, named="rmqio copy")
    copy.passes_on = True
    replay = new_command(commands, "replay", None, "send the messages of dead letters again", fill=_fill_replay)
    replay.set_defaults(writes=True)
    new_command(commands, "audit", None, "find messages lost or doubled between two topics", fill=_fill_audit)
    new_command(commands, "claims", None, "clean the folder of big bodies by age", fill=_fill_claims, connects=False)
    summary = "list the Avro schemas of a folder, or check them"
    new_command(commands, "schemas", None, summary, fill=_fill_schemas, connects=False)
    new_command(commands, "local", None, "run a RocketMQ on this machine", fill=_fill_local, connects=False)


def _fill_replay(parser: Parser) -> None:
    from rmqio.dead_letters import command

    command.add_options(parser)
    parser.set_defaults(run=command.run)


def _fill_audit(parser: Parser) -> None:
    from rmqio.audit import command

    command.add_options(parser)
    parser.set_defaults(run=command.run)


def _fill_claims(parser: Parser) -> None:
    from rmqio.claims import command

    command.add_options(parser)
    parser.set_defaults(run=command.show_help)


def _fill_schemas(parser: Parser) -> None:
    from rmqio.schemas import __main__ as schemas

    schemas.add_options(parser)
    parser.set_defaults(run=schemas.run)


def _fill_local(parser: Parser) -> None:
    from rmqio.local import __main__ as local

    local.add_options(parser)
    parser.set_defaults(run=local.run)


def _fill_rules(parser: Parser) -> None:
    from rmqio.rules import command

    command.add_options(parser)
    parser.set_defaults(run=command.show_help)


def _fill_copy(parser: Parser) -> None:
    from rmqio.connect.copying import command

    command.add_options(parser)
    parser.set_defaults(run=command.run)


def _fill_watch(parser: Parser) -> None:
    from rmqio.watch import command

    command.add_options(parser)
    parser.epilog = f"{command.MORE}\n\n{parser.epilog or ''}".rstrip()
    parser.set_defaults(run=command.run)


def _fill_sql(parser: Parser) -> None:
    try:
        from rmqio.sql import command
    except ImportError as error:
        raise LocalError(f"rmqio sql needs the extra 'sql': pip install 'rmqio[sql]' ({error})") from error

    command.add_options(parser)
    parser.set_defaults(run=command.run)
