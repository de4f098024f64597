"""For types of graph breaks a small program that breaks, and how it is written without: tests run them all."""
