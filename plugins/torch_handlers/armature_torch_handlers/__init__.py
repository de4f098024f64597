"""How torch functions are traced by armature."""
