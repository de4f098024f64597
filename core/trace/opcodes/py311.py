"""What only Python 3.11 has, or does in its own way: nothing beyond the shared opcodes, which follow 3.11."""

from __future__ import annotations
