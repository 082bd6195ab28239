"""Commands that plan, carry out and follow a roll, and the checks before and after it."""
