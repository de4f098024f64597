"""C++ back end for armature."""
