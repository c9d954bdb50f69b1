r"""The patterns that grok knows by name: those of Logstash, with its older names of fields, written anew.

Each matches what Logstash's does, also where the next part of a pattern takes back some of it, as the port behind an
address of IPv6. So only what nothing can be taken from is possessive (`*+`) or atomic (`(?>...)`). Repetitions have one
way to divide a text, so that a line that does not match is given up at once.
"""

from __future__ import annotations

from typing import Final

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
