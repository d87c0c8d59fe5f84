"""Time, memory and quality of rankings, token lists, training and explanations."""
