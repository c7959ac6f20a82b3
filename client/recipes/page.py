"""The blocks of code of client/TOKENS.md, by the headings that they are under."""

from __future__ import annotations

import pathlib

PAGE = pathlib.Path(__file__).resolve().parents[1] / "TOKENS.md"


def block(heading: str, language: str) -> str:
    """The only block in this language under this heading."""
    found = blocks().get((heading, language), [])
    assert len(found) == 1, f"{PAGE.name} has {len(found)} blocks of {language} under {heading!r}; one is expected"
    return found[0]


def blocks() -> dict[tuple[str, str], list[str]]:
    """All blocks, by heading and language."""
    found: dict[tuple[str, str], list[str]] = {}
    heading, language, lines = "", "", list[str]()
    for line in PAGE.read_text().splitlines():
        if language:
            if line == "```":
                found.setdefault((heading, language), []).append("\n".join([*lines, ""]))
                language = ""
            else:
                lines.append(line)
        elif line.startswith("```"):
            language, lines = line[3:], []
        elif line.startswith("#"):
            heading = line.lstrip("#").strip()
    return found
