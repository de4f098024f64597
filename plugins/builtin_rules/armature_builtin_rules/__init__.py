"""Skip, inline and in-graph rules and the graph-break catalogue for armature."""
