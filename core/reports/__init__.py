"""What a run of a program came to: one record, and the forms in which people and tools read it.

`record` has the data, `collect` makes it from the session; each renderer depends on the record alone.
"""
