"""What the server does: rounds, aggregation, memory, stopping, and whole fits."""
