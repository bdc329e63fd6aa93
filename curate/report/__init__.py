"""Pages for people: what a run found, in one HTML file that needs nothing else."""
