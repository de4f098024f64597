"""Fields of the record: each has a description, which stands in the schema."""

from __future__ import annotations

from typing import Any

import attrs


def documented(help: str, **options: Any) -> Any:  # Any: it stands where the value of the annotated type would stand
    """A field with its description."""
    return attrs.field(metadata={"help": help}, **options)
