"""Decompositions and ATen to loop IR lowerings for armature."""
