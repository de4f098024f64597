"""The launcher, in C."""
