"""What a checkpoint holds, real or predicted."""
