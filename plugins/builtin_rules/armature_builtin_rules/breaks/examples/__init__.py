"""For each type of graph break, a small program that breaks, and one that does the same without a break. Tests run them
all.

A function has the name of the type (`data_dependent_branch` breaks with `data-dependent-branch`); the rewritten one has
the same name with `_mended` appended. `..._inputs` makes their arguments if they take anything else than one tensor;
`..._called` calls them if the way of calling matters.
"""
