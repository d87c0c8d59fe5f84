"""Why a node was predicted as it was, and what token lists are like."""
