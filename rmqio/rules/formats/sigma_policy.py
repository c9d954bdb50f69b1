"""The policy for pySigma: RE2 checks regular expressions, as it does by default, but logs nothing on standard error."""

from __future__ import annotations

import re
from typing import Any, Final

import re2  # type: ignore[import-not-found,import-untyped,unused-ignore]
from sigma.policy import SigmaPolicy
from sigma.policy.regex_engine import RegexEngine

_FLAGS: Final = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s"}


class _Quiet(RegexEngine):
    """It has no attributes, because pySigma copies rules with their policy."""

    def compile(self, pattern: str, flags: int = 0) -> Any:
        options = re2.Options()
        options.log_errors = False
        given = "".join(letter for flag, letter in _FLAGS.items() if flags & flag)
        try:
            return re2.compile(f"(?{given}){pattern}" if given else pattern, options)
        except re2.error as error:
            text = error.args[0] if error.args else ""
            raise re2.error(text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)) from error

    @property
    def error(self) -> type[Exception]:
        found: type[Exception] = re2.error
        return found


POLICY: Final = SigmaPolicy(regex_engine=_Quiet())
