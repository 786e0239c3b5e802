"""A Flower app that does nothing: the time of a round of empty messages."""
