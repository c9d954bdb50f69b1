"""Grok: regular expressions made of named patterns, `%{IP:client}`, to fields of a line.

The engine is `regex`, since it can be told how long it may take: a pattern can need more steps for a line than there
is time. A line that is not matched in time fails, and is not waited for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from rmqio.sql.errors import nearest
from rmqio.sql.regexes import LARGEST, TIMEOUT_S, import_regex, in_time, size_of
from rmqio.sql.values import ValueFailure, shown

# The patterns that grok knows by name: those of Logstash, with its older names of fields, written anew.
#
# Each matches what Logstash's does, also where the next part of a pattern takes back some of it, as the port behind
# an address of IPv6. So only what nothing can be taken from is possessive (`*+`) or atomic (`(?>...)`). Repetitions
# have one way to divide a text, so that a line that does not match is given up at once.

_WORDS: Final = {
    "USERNAME": r"[a-zA-Z0-9._-]+",
    "USER": r"%{USERNAME}",
    "EMAILLOCALPART": r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,64}(?:\.[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,62}){0,63}",
    "EMAILADDRESS": r"%{EMAILLOCALPART}@%{HOSTNAME}",
    "WORD": r"\b\w+\b",
    "NOTSPACE": r"\S+",
    "SPACE": r"\s*",
    "DATA": r".*?",
    "GREEDYDATA": r".*",
    "QUOTEDSTRING": r'(?<!\\)(?>"(?:\\.|[^\\"])*+"|' + r"'(?:\\.|[^\\'])*+'|`(?:\\.|[^\\`])*+`)",
    "QS": r"%{QUOTEDSTRING}",
    "UUID": r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}",
    "URN": r"urn:[0-9A-Za-z][0-9A-Za-z-]{0,31}:(?:%[0-9a-fA-F]{2}|[0-9A-Za-z()+,.:=@;$_!*'/?#-])+",
}
_NUMBERS: Final = {
    "INT": r"[+-]?[0-9]+",
    "BASE10NUM": r"(?<![0-9.+-])(?>[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+))",
    "NUMBER": r"%{BASE10NUM}",
    "BASE16NUM": r"(?<![0-9A-Fa-f])[+-]?(?:0x)?[0-9A-Fa-f]+",
    "BASE16FLOAT": r"\b(?<![0-9A-Fa-f.])[+-]?(?:0x)?(?:[0-9A-Fa-f]+(?:\.[0-9A-Fa-f]*)?|\.[0-9A-Fa-f]+)\b",
    "POSINT": r"\b[1-9][0-9]*\b",
    "NONNEGINT": r"\b[0-9]+\b",
}
_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_OLD_OCTET: Final = r"(?:[0-1]?[0-9]{1,2}|2[0-4][0-9]|25[0-5])"
"""With zeros before it."""
_V4: Final = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_H16: Final = r"[0-9A-Fa-f]{1,4}"
_COMPRESSED: Final = "|".join(
    rf"(?:{_H16}:){{{before}}}{'' if before else ':'}"
    rf"(?:(?::{_H16}){{1,{7 - before}}}|(?::{_H16}){{0,{5 - before}}}:{_V4}|:)"
    for before in range(5, -1, -1)
)
"""Addresses with `::`, by the number of groups before it: the most first."""
_NETWORK: Final = {
    "CISCOMAC": r"(?:[A-Fa-f0-9]{4}\.){2}[A-Fa-f0-9]{4}",
    "WINDOWSMAC": r"(?:[A-Fa-f0-9]{2}-){5}[A-Fa-f0-9]{2}",
    "COMMONMAC": r"(?:[A-Fa-f0-9]{2}:){5}[A-Fa-f0-9]{2}",
    "MAC": r"(?:%{CISCOMAC}|%{WINDOWSMAC}|%{COMMONMAC})",
    "IPV4": rf"(?<![0-9]){_OLD_OCTET}(?:\.{_OLD_OCTET}){{3}}(?![0-9])",
    "IPV6": rf"(?:(?:{_H16}:){{7}}(?:{_H16}|:)|(?:{_H16}:){{6}}(?::{_H16}|{_V4}|:)|{_COMPRESSED})(?:%.+)?",
    "IP": r"(?:%{IPV6}|%{IPV4})",
    "HOSTNAME": r"\b(?:[0-9A-Za-z][0-9A-Za-z-]{0,62})(?:\.(?:[0-9A-Za-z][0-9A-Za-z-]{0,62}))*(?:\.?|\b)",
    "HOST": r"%{HOSTNAME}",
    "IPORHOST": r"(?:%{IP}|%{HOSTNAME})",
    "HOSTPORT": r"%{IPORHOST}:%{POSINT}",
    "UNIXPATH": r"/[\w%!$@:.,+~/-]*",
    "WINPATH": r"(?>[A-Za-z]+:|\\)\\[^?*]*",
    "PATH": r"(?:%{UNIXPATH}|%{WINPATH})",
    "TTY": r"/dev/(?:pts|tty(?:[pq])?)(?:\w+)?/?[0-9]+",
    "URIPROTO": r"[A-Za-z][A-Za-z0-9+.-]+",
    "URIHOST": r"%{IPORHOST}(?::%{POSINT:port})?",
    "URIPATH": r"/[A-Za-z0-9$.+!*'(){},~:;=@#%&_/-]*",
    "URIQUERY": r"[A-Za-z0-9$.+!*'|(){},~@#%&/=:;_?\[\]<>-]*",
    "URIPARAM": r"\?%{URIQUERY}",
    "URIPATHPARAM": r"%{URIPATH}(?:%{URIPARAM})?",
    "URI": r"%{URIPROTO}://(?:%{USER}(?::[^@]*)?@)?(?:%{URIHOST})?(?:%{URIPATHPARAM})?",
}
_TIMES: Final = {
    # German, too.
    "MONTH": r"\b(?:[Jj]an(?:uary?)?|[Ff]eb(?:ruary?)?|[Mm][aä]?r(?:ch|z)?|[Aa]pr(?:il)?|[Mm]a[yi]?|[Jj]un[ei]?"
    r"|[Jj]ul[yi]?|[Aa]ug(?:ust)?|[Ss]ept?(?:ember)?|[Oo][ck]?t(?:ober)?|[Nn]ov(?:ember)?|[Dd]e[cz](?:ember)?)\b",
    "MONTHNUM": r"(?:0?[1-9]|1[0-2])",
    "MONTHNUM2": r"(?:0[1-9]|1[0-2])",
    "MONTHDAY": r"(?:0[1-9]|[12][0-9]|3[01]|[1-9])",
    "DAY": r"(?:Mon(?:day)?|Tue(?:sday)?|Wed(?:nesday)?|Thu(?:rsday)?|Fri(?:day)?|Sat(?:urday)?|Sun(?:day)?)",
    "YEAR": r"(?>[0-9]{2}){1,2}",
    "HOUR": r"(?:2[0123]|[01]?[0-9])",
    "MINUTE": r"[0-5][0-9]",
    "SECOND": r"(?:[0-5]?[0-9]|60)(?:[:.,][0-9]+)?",
    "TIME": r"%{HOUR}:%{MINUTE}(?::%{SECOND})(?![0-9])",
    "DATE_US": r"%{MONTHNUM}[/-]%{MONTHDAY}[/-]%{YEAR}",
    "DATE_EU": r"%{MONTHDAY}[./-]%{MONTHNUM}[./-]%{YEAR}",
    "ISO8601_TIMEZONE": r"(?:Z|[+-]%{HOUR}(?::?%{MINUTE}))",
    "ISO8601_SECOND": r"%{SECOND}",
    "TIMESTAMP_ISO8601": r"%{YEAR}-%{MONTHNUM}-%{MONTHDAY}[T ]%{HOUR}:?%{MINUTE}(?::?%{SECOND})?%{ISO8601_TIMEZONE}?",
    "DATE": r"(?:%{DATE_US}|%{DATE_EU})",
    "DATESTAMP": r"%{DATE}[- ]%{TIME}",
    "TZ": r"(?:[APMCE][SD]T|UTC|GMT)",
    "DATESTAMP_RFC822": r"%{DAY} %{MONTH} %{MONTHDAY} %{YEAR} %{TIME} %{TZ}",
    "DATESTAMP_RFC2822": r"%{DAY}, %{MONTHDAY} %{MONTH} %{YEAR} %{TIME} %{ISO8601_TIMEZONE}",
    "DATESTAMP_OTHER": r"%{DAY} %{MONTH} %{MONTHDAY} %{TIME} %{TZ} %{YEAR}",
    "DATESTAMP_EVENTLOG": r"%{YEAR}%{MONTHNUM2}%{MONTHDAY}%{HOUR}%{MINUTE}%{SECOND}",
    "HTTPDERROR_DATE": r"%{DAY} %{MONTH} %{MONTHDAY} %{TIME} %{YEAR}",
    "HTTPDATE": r"%{MONTHDAY}/%{MONTH}/%{YEAR}:%{TIME} %{INT}",
    "SYSLOGTIMESTAMP": r"%{MONTH} +%{MONTHDAY} %{TIME}",
}
_SERVERS: Final = {
    "PROG": r"[\x21-\x5a\x5c\x5e-\x7e]+",
    "SYSLOGPROG": r"%{PROG:program}(?:\[%{POSINT:pid}\])?",
    "SYSLOGHOST": r"%{IPORHOST}",
    "SYSLOGFACILITY": r"<%{NONNEGINT:facility}.%{NONNEGINT:priority}>",
    "SYSLOGBASE": r"%{SYSLOGTIMESTAMP:timestamp} (?:%{SYSLOGFACILITY} )?%{SYSLOGHOST:logsource} +%{SYSLOGPROG}:",
    "SYSLOGBASE2": r"(?:%{SYSLOGTIMESTAMP:timestamp}|%{TIMESTAMP_ISO8601:timestamp8601}) (?:%{SYSLOGFACILITY} )?"
    r"%{SYSLOGHOST:logsource}(?: +%{SYSLOGPROG}:|)",
    "SYSLOGLINE": r"%{SYSLOGBASE2} %{GREEDYDATA:message}",
    "HTTPDUSER": r"(?:%{EMAILADDRESS}|%{USER})",
    "COMMONAPACHELOG": r"%{IPORHOST:clientip} %{HTTPDUSER:ident} %{HTTPDUSER:auth} \[%{HTTPDATE:timestamp}\] "
    r'"(?:%{WORD:verb} %{NOTSPACE:request}(?: HTTP/%{NUMBER:httpversion})?|%{DATA:rawrequest})" '
    r"(?:-|%{NUMBER:response}) (?:-|%{NUMBER:bytes})",
    "COMBINEDAPACHELOG": r"%{COMMONAPACHELOG} %{QS:referrer} %{QS:agent}",
    "HTTPD_COMMONLOG": r"%{COMMONAPACHELOG}",
    "HTTPD_COMBINEDLOG": r"%{COMBINEDAPACHELOG}",
    "HTTPD20_ERRORLOG": r"\[%{HTTPDERROR_DATE:timestamp}\] \[%{LOGLEVEL:loglevel}\] "
    r"(?:\[client %{IPORHOST:clientip}\] )?%{GREEDYDATA:message}",
    # The last number of an address of IPv6 is the port, if it can be one: servers write both.
    "HTTPD24_ERRORLOG": r"\[%{HTTPDERROR_DATE:timestamp}\] \[(?:%{WORD:module})?:%{LOGLEVEL:loglevel}\] "
    r"\[pid %{POSINT:pid}(?::tid %{NUMBER:tid})?\](?: \(%{POSINT:proxy_errorcode}\)%{DATA:proxy_message}:)?"
    r"(?: \[client (?:%{IPORHOST:clientip}:%{POSINT:clientport}|%{IPORHOST:clientip})\])?"
    r"(?: %{DATA:errorcode}:)? %{GREEDYDATA:message}",
    "HTTPD_ERRORLOG": r"(?:%{HTTPD20_ERRORLOG}|%{HTTPD24_ERRORLOG})",
    "LOGLEVEL": r"(?:[Aa]lert|ALERT|[Tt]race|TRACE|[Dd]ebug|DEBUG|[Nn]otice|NOTICE|[Ii]nfo?(?:rmation)?"
    r"|INFO?(?:RMATION)?|[Ww]arn?(?:ing)?|WARN?(?:ING)?|[Ee]rr?(?:or)?|ERR?(?:OR)?|[Cc]rit?(?:ical)?|CRIT?(?:ICAL)?"
    r"|[Ff]atal|FATAL|[Ss]evere|SEVERE|[Ee]merg(?:ency)?|EMERG(?:ENCY)?)",
}
_JAVA: Final = {
    "JAVACLASS": r"(?:[a-zA-Z$_][a-zA-Z$_0-9]*\.)*[a-zA-Z$_][a-zA-Z$_0-9]*",
    "JAVAFILE": r"[a-zA-Z$_0-9. -]+",
    "JAVAMETHOD": r"(?:<(?:cl)?init>|[a-zA-Z$_][a-zA-Z$_0-9]*)",
    "JAVASTACKTRACEPART": r"%{SPACE}at %{JAVACLASS:class}\.%{JAVAMETHOD:method}"
    r"\(%{JAVAFILE:file}(?::%{NUMBER:line})?\)",
    "JAVALOGMESSAGE": r".*",
}
PATTERNS: Final = {**_WORDS, **_NUMBERS, **_NETWORK, **_TIMES, **_SERVERS, **_JAVA}


_REFERENCE: Final = re.compile(r"%\{([^{}]*)\}")
_PARTS: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::([^:]+))?(?::([a-z]+))?")
_KINDS: Final = ("int", "float", "long", "double", "string", "boolean")
_MOST_PARTS: Final = 2000
"""References in one pattern, with those of the patterns that it names."""


class WrongPattern(ValueFailure):
    """A grok pattern that is not valid."""


class Grok(NamedTuple):
    """A compiled pattern. `groups`: the names of the fields, and the groups of the expression that give them."""

    expression: Any
    groups: tuple[tuple[str, tuple[int, ...]], ...]
    timeout_s: float

    @property
    def names(self) -> list[str]:
        """The names of the fields, in the order in which they come first."""
        return [name for name, _ in self.groups]

    def match(self, line: str) -> dict[str, str] | None:
        """Returns the fields that are found in the line; None: it does not match. Raises `ValueFailure` if it is slow.

        The first part that matches counts if several have one name. Parts that match nothing are left out.
        """
        try:
            found = in_time(self.expression.search, self.timeout_s, line)
        except TimeoutError:
            limit = f"{self.timeout_s:g} s"
            raise ValueFailure(f"the grok pattern was not matched within {limit}: it begins {shown(line)}") from None
        if found is None:
            return None
        fields = {}
        for name, groups in self.groups:
            for group in groups:
                text = found[group]
                if text is not None:
                    fields[name] = text
                    break
        return fields


def compiled(pattern: str, own: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S) -> Grok:
    """Returns the compiled pattern. `own`: further patterns by name. Raises `WrongPattern` if it is not valid."""
    return _compiled(pattern, tuple(sorted((own or {}).items())), timeout_s)


@lru_cache(maxsize=500)
def _compiled(pattern: str, own: tuple[tuple[str, str], ...], timeout_s: float) -> Grok:
    regex = import_regex("grok patterns")
    places: dict[str, str] = {}
    text = _expanded(pattern, {**PATTERNS, **dict(own)}, places)
    if size_of(text) > LARGEST:
        raise WrongPattern(
            f"{shown(pattern)} is too large: with its patterns, and its repeats such as {{1000}} written out, it has "
            f"more than {LARGEST:,} characters"
        )
    try:
        expression = regex.compile(text, regex.DOTALL | regex.MULTILINE)  # as Logstash, whose lines can be several
    except (regex.error, OverflowError, RecursionError) as error:
        raise WrongPattern(f"{shown(pattern)} is not a grok pattern: {error}") from None
    fields: dict[str, list[int]] = {}
    for group, index in sorted(expression.groupindex.items(), key=lambda each: each[1]):
        fields.setdefault(places.get(group, group), []).append(index)
    return Grok(expression, tuple((name, tuple(groups)) for name, groups in fields.items()), timeout_s)


def _expanded(pattern: str, known: Mapping[str, str], places: dict[str, str]) -> str:
    """The regular expression. Groups get names of their own, since a field can have any: `places` has its name."""
    count = 0

    def expand(text: str, within: tuple[str, ...]) -> str:
        def part(found: re.Match[str]) -> str:
            nonlocal count
            count += 1
            if count > _MOST_PARTS:
                raise WrongPattern(f"{shown(pattern)} has more than {_MOST_PARTS} parts, with those of its patterns")
            parts = _PARTS.fullmatch(found[1])
            if parts is None:
                raise WrongPattern(f"{found[0]} is not a part of a grok pattern; one is %{{IP:client}}")
            name, field, kind = parts.groups()
            if kind is not None and kind not in _KINDS:
                raise WrongPattern(f"{found[0]}: {kind} is not a type{nearest(kind, _KINDS)}")
            if name not in known:
                raise WrongPattern(f"there is no grok pattern {name}{nearest(name, known)}")
            if name in within:
                raise WrongPattern(f"the grok pattern {name} contains itself")
            inner = expand(known[name], (*within, name))
            if field is None:
                return f"(?:{inner})"
            group = f"grok_{len(places)}"
            places[group] = _field(field)
            return f"(?P<{group}>{inner})"

        if "%{" in _REFERENCE.sub("", text):
            raise WrongPattern(f"{shown(text)} has a %{{ without its }}; a part of a grok pattern is %{{IP:client}}")
        return _REFERENCE.sub(part, text)

    return expand(pattern, ())


def _field(name: str) -> str:
    """Logstash's `[http][status]` is `http.status`."""
    return ".".join(re.findall(r"\[([^\[\]]+)\]", name)) if re.fullmatch(r"(?:\[[^\[\]]+\])+", name) else name
