"""The catalogue (what is known of every image, candidate, run and release) and the image store."""
