"""A Flower app that does nothing: what a round of messages costs whoever sends them."""
