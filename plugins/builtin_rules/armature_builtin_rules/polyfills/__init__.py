"""Python stand-ins for functions written in C: traced in their place. Same signature, same result, same exceptions.

Each module lists its pairs in STAND_INS: the original, and the function that is traced.
"""
