"""Pages in a headless Chromium, if there is one: Debian has it as the package `chromium`."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import tempfile
from typing import Final

import pytest

from tests.helpers.waiting import at_most

_FOUND: Final = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

needs_browser = pytest.mark.skipif(_FOUND is None, reason="neither Chromium nor Chrome is installed")


def shown(url: str, *, width: int = 1280) -> str:
    """Returns the document as HTML after its scripts have run for three seconds of the page's clock.

    Fails if a script fails, or something is refused by the page's security policy: both are in the console.
    """
    assert _FOUND is not None
    with tempfile.TemporaryDirectory(prefix="rmqio-browser-") as folder:
        command = [_FOUND, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        command += [f"--user-data-dir={folder}", f"--window-size={width},900", "--enable-logging=stderr"]
        command += ["--virtual-time-budget=3000", "--dump-dom", url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=at_most(120), check=True)
    console = re.findall(r"^.*CONSOLE.*$", done.stderr, re.MULTILINE)
    assert not console, console
    return done.stdout


def texts(document: str) -> str:
    """Returns the text of a document, a space between two elements."""
    body = re.sub(r"(?s)<(script|style|title)\b.*?</\1>", "", document)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())
