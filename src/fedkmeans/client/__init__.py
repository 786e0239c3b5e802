"""What a client does: its rows, its answers, and clients of one process."""
