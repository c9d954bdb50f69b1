"""Links out of the site, and the check of those in it: each file and each anchor that a page links to must be there."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

_ROOT: Final = Path(__file__).parents[2]
_ATTRIBUTES: Final = {"a": "href", "img": "src", "link": "href", "script": "src"}


def repository_path(link: str) -> str | None:
    """Returns the path of a link to a file that is in the repository and not in `docs`; None for other links."""
    path = link
    while path.startswith("../"):
        path = path.removeprefix("../")
    path = path.partition("#")[0]
    if not link.startswith("../") or not (_ROOT / path).exists() or (_ROOT / "docs" / path).exists():
        return None
    return path


class Checked(NamedTuple):
    """The pages and links of a site."""

    pages: int
    links: int
    broken: list[str]


class _Page(HTMLParser):
    """Collects the anchors and the links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors.update(name for key in ("id", "name") if (name := found.get(key)))
        link = found.get(_ATTRIBUTES.get(tag, ""))
        if link:
            self.links.add(link)


def broken_links(site: Path) -> Checked:
    """Returns the number of pages and of internal links, and the broken ones, as `page: link: why`."""
    pages = {path: _Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    count, broken = 0, []
    for path, page in pages.items():
        if path.name == "404.html":  # its links are made for any address
            continue
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            where = path.relative_to(site)
            if not target.is_file():
                broken.append(f"{where}: {link}: there is no such file")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                broken.append(f"{where}: {link}: the page has no such anchor")
    return Checked(len(pages), count, broken)
