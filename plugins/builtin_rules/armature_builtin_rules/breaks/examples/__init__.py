"""For each type of graph break a small program that breaks, and how it is written without: tests run them all.

A function has the name of the type (`data_dependent_branch` breaks with `data-dependent-branch`); the one that mends it
is called the same and `_mended`. `..._inputs` makes their arguments, where they take another thing than one tensor;
`..._called` calls them, where it matters how.
"""
