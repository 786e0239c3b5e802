"""Pages to read in a browser: one HTML file each, that needs nothing else."""
