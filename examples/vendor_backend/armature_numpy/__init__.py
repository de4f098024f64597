"""A back end for armature that prints loops as NumPy code: small enough to read before you write your own."""
