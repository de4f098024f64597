"""Fields of the record: each has a description, which the schema contains."""

from __future__ import annotations

from typing import Any

import attrs


def documented(help: str, **options: Any) -> Any:  # Any: the result is assigned to fields of any annotated type
    """A field with its description."""
    return attrs.field(metadata={"help": help}, **options)
