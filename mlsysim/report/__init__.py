"""Cards, figures and words: draws plain rows, checks and spans, and knows no result."""
