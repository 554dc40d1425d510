"""Why did the model say that: votes, the heads that count most, and what happens without them."""
