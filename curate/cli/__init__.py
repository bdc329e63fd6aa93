"""The command line: each command parses, calls one pipeline, and prints its summary."""
