"""Which guard failed, in words."""

from __future__ import annotations

from armature.frame.guards.tree import Condition, GuardTree


def failed(tree: GuardTree, f_locals: dict[str, object]) -> tuple[str, ...]:
    """The guards that do not hold for these locals, the first that fails only, shape conditions all; () if all hold.

    Texts name the source expression and, where known, the user's line that relies on it.
    """
    info = tree.holder.root.check_verbose(f_locals)
    if info.result:
        return ()
    texts = tuple(str(part) for part in info.verbose_code_parts)
    if tree.conditions and set(texts) == {text for text, _ in tree.conditions}:
        broken = tuple(text for text, holds in tree.conditions if not _holds(holds, f_locals))
        return broken or texts
    return texts


def _holds(condition: Condition, f_locals: dict[str, object]) -> bool:
    try:
        return condition(f_locals)
    except ArithmeticError:  # a remainder by a size of 0, where another condition fails
        return False
