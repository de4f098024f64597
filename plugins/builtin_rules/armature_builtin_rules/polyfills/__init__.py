"""Polyfills: Python functions traced in place of C functions. Same signature, same result, same exceptions.

Each module lists its pairs in STAND_INS: the original, and the function that is traced.
"""
