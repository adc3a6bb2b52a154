"""The description for package indexes: the README, with its links and as that of a release."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)")


def with_absolute_links(text: str, repository: str) -> str:
    """Return a page whose relative links and images lead into a repository."""

    def link(found: re.Match[str]) -> str:
        image, label, target = found.groups()
        kind = "raw" if image else "blob"
        return f"{image}[{label}]({repository}/{kind}/main/{target})"

    return _LINK.sub(link, text)


def of_release(text: str) -> str:
    """Return a page that says how to install a release, and not a clone."""
    text = text.replace(
        "There is no release yet. This command, in a clone, installs", "This installs"
    )
    return text.replace('pip install ".[all]"', 'pip install "vecspaces[all]"')


class ReadmeHook(MetadataHookInterface):
    """Fills in `project.readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the description that package indexes show."""
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = with_absolute_links(of_release(readme), metadata["urls"]["Repository"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
