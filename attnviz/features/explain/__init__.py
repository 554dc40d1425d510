"""Why did the model say that: what adds up to its lead, and the heads that count most."""
