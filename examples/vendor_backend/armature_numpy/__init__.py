"""A back end for armature that prints loops as NumPy: small enough to read before you write your own."""
