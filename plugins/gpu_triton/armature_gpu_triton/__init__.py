"""Triton back end for armature."""
