"""What each address of the page answers, and the looks behind it."""

from __future__ import annotations
