"""The client side: sites with their data, their replies, and sites in the same process."""
