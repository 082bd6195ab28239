"""May the next worker be restarted?"""

from __future__ import annotations
