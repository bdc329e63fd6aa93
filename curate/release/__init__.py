"""Releases: immutable, versioned datasets in the layout of ImageNet-A, and reading that layout."""
