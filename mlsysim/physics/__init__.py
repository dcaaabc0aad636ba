"""Laws: quantities and numbers in, one quantity out."""
