"""Functions of torch that take functions, to call them now, later or several times."""
