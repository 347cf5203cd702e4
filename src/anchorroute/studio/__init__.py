"""How it is authored in a browser."""
