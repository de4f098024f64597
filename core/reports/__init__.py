"""Reports on a run of a program: one record of what happened, and the formats in which people and tools read it.

`record` defines the data and `collect` builds it from the session; each renderer depends on the record alone.
"""
