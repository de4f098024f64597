"""Every operator of torch's own table of sample inputs (OpInfo), forward and backward, against eager mode.

`python -m benchmarks.opinfo --help`; `samples` compares the results, `incumbent` counts what torch.compile makes of
them, `report` makes tables.
"""
