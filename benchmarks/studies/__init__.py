"""Studies that change one thing at a time and compare accuracy."""
