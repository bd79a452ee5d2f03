"""What the end-to-end stories are told with. Python's standard library only."""
