"""The order of things: one file a stage, each reading rows that wait for it and writing rows."""
