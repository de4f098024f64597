"""Every operator of torch's own table of sample inputs (OpInfo), forward and backward, against eager mode.

`python -m benchmarks.opinfo --help`; the answers are compared by `samples`, the counts are made by `report`.
"""
