"""How it is learned."""
