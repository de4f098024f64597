"""The catalogue of graph breaks: what each id means, in words, and what to do about it. A module for each family."""
