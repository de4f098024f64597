"""For types of graph breaks, a small program that breaks, and one that does the same without a break. Tests run them
all."""
