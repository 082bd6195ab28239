"""What OpenLineage receives of interval runs and rolls; the extra ``openlineage``."""

from __future__ import annotations
