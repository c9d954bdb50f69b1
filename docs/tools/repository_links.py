"""Shows links to files of the repository as text, with the path as a tooltip: the site has no such pages.

On a repository host the links work. A link whose target lies in `docs` stays as it is.
"""

from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import Element

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor

from docs.tools.links import repository_path


class _AsText(Treeprocessor):
    def run(self, root: Element) -> None:
        for link in root.iter("a"):
            path = repository_path(link.get("href", ""))
            if path is not None:
                title = link.get("title")
                link.tag = "abbr"
                link.attrib = {"title": f"{path}: {title}" if title else path}


class RepositoryLinks(Extension):
    """The extension for mkdocs.yml."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.treeprocessors.register(_AsText(md), "repository_links", 5)


def makeExtension(**options: Any) -> RepositoryLinks:
    return RepositoryLinks(**options)
