"""What armature knows about tinyframe."""
