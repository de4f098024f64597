"""Python's own functions and types, a module for each kind."""
