"""Commands that plan, carry out and follow a roll, and those that check before and after it."""
