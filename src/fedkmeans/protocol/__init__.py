"""What travels between server and clients, how it is checked, and how algorithms ask."""
