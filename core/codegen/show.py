"""Prints a program for people: the wrapper, then the source of every back end."""

from __future__ import annotations

from armature.codegen.data import Program


def show(program: Program) -> str:
    """Everything that was generated, as text."""
    parts = [show_wrapper(program), show_kernels(program)]
    return "\n".join(part for part in parts if part)


def show_wrapper(program: Program) -> str:
    """The wrapper, with the user's line at the right of each step."""
    return program.wrapper


def show_kernels(program: Program) -> str:
    """The kernels' sources, each under the name of its back end."""
    return "\n".join(f"# --- {source.backend} ({source.language})\n{source.text}" for source in program.sources)
