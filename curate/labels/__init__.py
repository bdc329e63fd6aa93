"""Label spaces: which classes there are, what they are called, which output columns they read."""
