"""The programs of pages for other libraries, taken from the page and run as a reader would."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tests.programs import ROOT, run_python


def code_of(
    page: str, section: str | None = None, replaced: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return the code of a page or of one of its sections, with other text in place of some."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    if section is not None:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    assert code, f"{page}.md has no code in the section {section}"
    for line, other in replaced.items():
        assert line in code, line
        code = code.replace(line, other)
    return code


def run_program(code: str, folder: Path, *arguments: str) -> str:
    """Run code as a program of its own, in a folder; return what it prints."""
    program = folder / "program.py"
    program.write_text(code, encoding="utf-8")
    return run_python("-W", "ignore", program, *arguments, timeout=200, cwd=folder).stdout
