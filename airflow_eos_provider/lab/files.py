"""Files of the lab, and of installed packages that are found and not imported: that takes seconds, or fails."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def files_of(package: str, pattern: str) -> list[Path]:
    """The files of an installed package that match a pattern, sorted."""
    spec = importlib.util.find_spec(package)
    folders = (spec.submodule_search_locations or []) if spec else []
    return sorted(file for folder in folders for file in Path(folder).glob(pattern))


def write_atomically(path: Path, text: str) -> None:
    """Replace a file's content in one step; its owner only may read it."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.touch(mode=0o600)
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
