"""The plain NumPy kernel, which every other kernel is held against."""
