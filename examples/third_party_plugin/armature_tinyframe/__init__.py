"""Teaches armature about tinyframe."""
